"""The native entry: machine code that checks and passes arguments without Python."""
