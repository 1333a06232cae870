"""What a step gets: the arguments of a call, live numbers, watched values, state cells."""
