"""How work is cut into parts, and the pool that runs them."""
