"""What is around a step: what its code can read there, and the places that it binds."""
