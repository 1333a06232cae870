"""From a loop nest to LLVM IR: a rule for each op, loops, vectors and tails."""
