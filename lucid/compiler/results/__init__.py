"""What a step leaves behind, and the history by which others differentiate it."""
