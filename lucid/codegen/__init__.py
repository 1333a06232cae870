"""Code generation: kernels and vector mathematics as LLVM IR, and the machine code of them."""
