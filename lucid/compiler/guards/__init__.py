"""What a step reads while it is traced, and whether that is still so at a later call."""
