"""What a kernel is: loops over buffers, instructions, addresses, and the contract of all kinds."""
