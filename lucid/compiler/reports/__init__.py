"""What users can look at: profiles, checks, the graph of kernels."""
