"""Values that a call has only later, or that differ in each: numbers, arrays, lists, texts."""
