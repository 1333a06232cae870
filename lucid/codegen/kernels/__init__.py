"""The kinds of kernels, a file each: what it is, how it is cut, what it means, its LLVM IR."""
