"""LLVM IR text, the processor that it is for, and machine code."""
