"""What the choices of fusion, loops and layouts weigh: one table of relative times and sizes."""

from __future__ import annotations

# Vector instructions of ops that take more than one.
_OPS = {
    "exp": 16, "log": 20, "log1p": 26, "expm1": 18, "sin": 30, "cos": 30, "tanh": 20,
    "sigmoid": 20, "erf": 40, "pow": 60, "div": 4, "sqrt": 4, "rsqrt": 8, "reciprocal": 4,
    "floor_div": 40, "remainder": 30, "random_uniform": 60, "random_normal": 120,
    "take": 6, "gather": 6, "store": 0, "write_at": 6, "matmul": 0, "contract": 0,
}  # fmt: skip

# A computation up to this is repeated by a reader that repeats its result anyway.
SHORT = 6
# So is one whose result has so many times the elements of what it reads: 256 bodies, n**2 pairs,
# gradient included, 8.6 -> 6.3 ns a pair.
GROWN = 8

# Elements of a row that is gone over several times: it should stay in the L1 or L2 cache.
ROW = 16384
# To store a line that is shorter takes less than to look for an element in it.
LONG = 64
# Sums of columns that stay in the L1 cache while rows are swept.
COLUMNS = 1 << 13
# Bytes of a temp that don't count where kernels are put into an order that needs little memory.
LITTLE = 1 << 12
# Size of one loop body; beyond it registers spill and code generation gets slow.
LOOP = 400
EPILOGUE = 200
# An epilogue up to this is repeated for each accumulator of a tile.
INLINE = 8
# A body up to this is repeated with accumulators of its own, to hide the latency.
UNROLLED = 12
# Values of an early pass are kept for a later one if they took more than this, and fit (in bytes).
KEPT = 6
KEPT_BYTES = 1 << 15

# Time of a vector whose elements are adjacent, the same, apart, or found by an index each.
ADJACENT, REPEATED, APART, INDEXED = 1.0, 0.3, 8.0, 8.0
# Stores to separate places take longer than loads.
SCATTERED = 2.0
# A shorter vector isn't full; as many lines that are indexed together pay for a copy.
LINES = 16
# The elements of so short a last axis may become values apart.
SMALL = 4
# Another layout is chosen if the cost falls below this part of what it was.
WORTHWHILE = 0.75

# Least rows, columns and inner elements of a contraction that is made a product of matrices, and
# columns of one image of a batch of them.
MATRIX, IMAGE = 16, 96
# Multiply-adds in the time of copying an element, and of reading one in another order.
COPIED = 24
COPIED_BYTES = 1 << 26
WORTH_COPIES = 0.9
# How fast a contraction over axes is: lanes that are enough, then lanes 2 to 4 elements apart,
# lanes further apart, and dot products, all against loads of adjacent elements; elements that are
# repeated to all lanes, where fewer than so many come from one line of the cache.
LANES, NEAR_LANES, FAR_LANES, FOLDED_LANES = 8, 0.65, 0.35, 0.7
NEAR, FAR_REPEATED = 8, 0.6


def cost_of(op: str) -> int:
    """Roughly the vector instructions of one op."""
    return _OPS.get(op, 1)
