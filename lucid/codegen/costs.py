"""The cost table: all numbers by which the choices of codegen are made, and where they come from.

They are times, sizes, and relative times in vector instructions. Where a line doesn't say otherwise
they were measured on one core of x86-64 servers with vectors of 256 and 512 bits, with the programs
in `benchmarks/`: `limits.py` for products, calls and threads, `conv_layers.py` for contractions,
`run.py` for the rest. Others differ by less than the models err that use them. None of them is
measured when a program is compiled: equal programs give equal code, and equal bits on any number
of threads.
"""

from __future__ import annotations

# Fusion ---------------------------------------------------------------------------------------

# Vector instructions of ops that take more than one, counted in their code.
_OPS = {
    "exp": 16, "log": 20, "log1p": 26, "expm1": 18, "sin": 30, "cos": 30, "tanh": 20,
    "sigmoid": 20, "erf": 40, "pow": 60, "div": 4, "sqrt": 4, "rsqrt": 8, "reciprocal": 4,
    "floor_div": 40, "remainder": 30, "random_uniform": 60, "random_normal": 120,
    "take": 6, "gather": 6, "store": 0, "write_at": 6, "matmul": 0, "contract": 0,
    "cumlogsumexp": 50, "gcd": 200, "recurrence": 2,
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
# What runs along an axis in order, running folds and writes by an index, gains nothing by lanes
# whose elements are LINE or more apart, if it takes no more than this: a sum along rows of
# 1024 x 1024 f32, in 16 rows at once, 27 ms, one after the other 0.9; scatter_add along
# 256 x 4096, 15.8 -> 0.6.
SERIAL = 12
LINE = 16
# Size of one loop body; beyond it registers spill and code generation gets slow.
LOOP = 400
# Items of one that no loop runs: LLVM's time grows with the square of what it reads and stores.
STRAIGHT = 256
EPILOGUE = 200
# Single numbers that one kernel stores.
NUMBERS = 64
# An op that takes more doesn't follow dot products, one by one: exp of 12,695, 140 -> 40 us.
ONE_BY_ONE = 6
# The elements of so short a last axis may become values apart.
SMALL = 4

# Layouts --------------------------------------------------------------------------------------

# Time of a vector whose elements are adjacent, the same, apart, or found by an index each.
ADJACENT, REPEATED, APART, INDEXED = 1.0, 0.3, 8.0, 8.0
# Stores to separate places take longer than loads.
SCATTERED = 2.0
# A shorter vector isn't full; as many lines that are indexed together pay for a copy.
LINES = 16
# Another layout is chosen if the cost falls below this part of what it was.
WORTHWHILE = 0.75
# Bytes of a temp that don't count where kernels are put into an order that needs little memory.
LITTLE = 1 << 12

# Loops ----------------------------------------------------------------------------------------

# An epilogue up to this is repeated for each accumulator of a tile.
INLINE = 8
# A body up to this is repeated with accumulators of its own, to hide the latency.
UNROLLED = 12
# Values of an early pass are kept for a later one if they took more than this, and fit (in bytes).
KEPT = 6
KEPT_BYTES = 1 << 15
# Bytes of a row from which on the next one is asked for while this one is computed with: cross
# entropy with its gradient, 4096 rows of 8192 f32, 32 -> 22 ms.
STREAMED_ROW = 1 << 8
# An array is filled before it is padded where the ends of its lines are more than this part of it:
# zeros around 384 x 32 images of 4 x 4, 100 -> 40 us.
LINE_ENDS = 10
# Elements of a line that a transposition reads from one line after the other.
TILE = 64
# Rows that a kernel which sums along them also sums together, in memory: 256 bodies, n**2 pairs.
FOLDED_ROWS = 32
# Rows whose sums of columns are folded together, and the bytes of the array from which on that is
# done; vectors of columns that such a sweep wants in a part.
SWEPT_ROWS = 8
SWEPT_BYTES = 1 << 17
SWEPT_VECTORS = 16

# Products for which a convolution of transformed tiles must be fewer, for each element of a tile:
# 64 channels of 32 x 32 and 128 of 16 x 16, f32, 32 images: 38 -> 33 ms, 32 -> 17.
TRANSFORMED = 60

# Products of matrices -------------------------------------------------------------------------

# Operands above this size no longer stay in the second-level cache between uses.
PACK_BYTES = 256 * 1024
# What a block of an operand, and the sums that wait, may take of the second-level cache.
BLOCK_BYTES = 512 * 1024
# Below this many rows a copy of B costs more than it saves, and below so many columns one of A.
PACK_ROWS = 32
# From so many rows and inner indices on a copy is worth its time where B is small, too: a column of
# tiles finds its elements in a row, and not at equal distances, which few lines of the first-level
# cache serve. 1024 x 128, inner 512, 62 -> 95 GFLOP/s; 256 x 256, inner 256, 64 -> 80; 256 x 512,
# inner 32, 143 -> 157, but 256 x 1024, inner 16, 122 -> 112.
PACK_ALL_ROWS, PACK_ALL_INNER = 128, 32
PACK_COLUMNS = 48
# Rows that the tile of a product with an open number of them is chosen for: many, and a multiple of
# most heights.
OPEN_ROWS = 840
# The same of columns: vectors of them.
OPEN_VECTORS = 4
# A load of a scalar for all lanes, and of a vector, in a tile, against a multiply-add. GFLOP/s of
# tiles, 1680 x 960, inner 512: of 16 lanes 6 x 4 162, 5 x 5 159, 8 x 3 152, 12 x 2 144, 8 x 2 120,
# 6 x 2 113; of 8 lanes, and half the registers, 6 x 2 95, 13 x 1 78.
SCALAR_LOAD, VECTOR_LOAD = 1.0, 1.6
# An A whose neighbours along the inner axis lie on pages of their own is slow to read.
PAGE_BYTES = 4096
# Dot products that run side by side, to hide the latency.
DOTS_AT_ONCE = 4
# The first operand of a blocked product is read where it lies if its lines are met as a whole.
LINE_BYTES = 64
# So many rows are multiplied by dot products with a matrix whose columns aren't adjacent, if these
# are so many times as long: a copy of it would be read once for each tile of rows.
DOT_ROWS, DOT_LENGTH = 16, 24
# Large products stream their operands for each part: parts of them should not be small.
PRODUCT_PART_SECONDS = 400e-6
# To copy an element of the second operand of a part, against reading one of the first.
COPIED = 4.0
# Pages of the result, and of what an update reads beside it, that the rows of a part may lie on: of
# more the processor looks up each anew for each tile. 1024 x 1024 f32, inner 256, with an update by
# Adam, all rows 11.6 ms, of 256 pages 8.8, and, elsewhere, 256 -> 64 6.5 -> 6.1.
PART_PAGES = 64

# What of a packed B a tile goes through for each block of rows: it stays in the first-level cache.
PANEL_BYTES = 32 * 1024
# Of an array that products needn't ask for ahead: what made it has left it in a cache.
NEAR_BYTES = 16 * 1024
# Rows of a part that copies its columns of B by itself.
PART_ROWS = 96
# Rows of a part that copies its rows of A, where sums wait for the next block: with few of them all
# columns are one block, and A is copied once. 1024 x 256, inner 1024, of a transposed A, 4.6 -> 4.3
# ms.
WAITING_ROWS = 256
# Inner indices that a part has at least where a product of few elements is cut along them: what it
# leaves is stored and loaded once more. Weights of 3 channels to 64, kernel 4, 32 images of
# 32 x 32, two threads, 0.56 -> 0.29 ms; one thread, 0.56 both.
INNER_PART = 256
# What each part leaves of an element of the result, against an element of an operand: 128 x 512,
# inner 1024, in parts of the inner indices 92 GFLOP/s, of the columns 116; inner 4096, 107 and 105.
PARTIAL_SUM = 8
# Copying a vector of lanes, in multiply-adds of vectors: for each run of neighbours, for each run
# of elements further apart and each step of those, for each load, shuffle and store of a square
# block that is transposed, by a gather.
RUN, NEAR_RUN, SHUFFLED, GATHERED_LANES = 3.0, 2.5, 1.67, 32.0

# Of so few rows a large matrix is read once, in blocks of so many lines and bytes of each: 16 rows
# by 4096 x 1024 f32, 9.7 -> 4.1 ms; 2 rows by 3072 x 768, 0.38 -> 0.75.
STREAMED_ROWS = 4, 48
STREAMED_LINES, STREAMED_LINE_BYTES = 64, 256

# Contractions over axes -----------------------------------------------------------------------

# Least rows, columns and inner elements of a product for which images are folded, and neighbours in
# the result that are enough without it.
MATRIX, IMAGE = 16, 96
# Zeros around images are left out of convolutions of which no more than this share is within the
# images, of so many channels and images, and no more places in a window: 512 channels, 32 images of
# 4 x 4, 24 -> 18 ms; 256 channels, 8 x 8, 23 -> 20 ms (16 x 16, a share of 0.92, 23.5 -> 26).
INSIDE, PADDED_MATRIX, IMAGES, PLACES = 0.9, 64, 16, 128
# How fast contractions over axes are against products of matrices: with lanes along the result, and
# of dot products. 1,280 channels to 320, 32 images of 2 x 2, as a product 2.5 -> 0.9 ms.
AXES_LANES, FOLDED_LANES = 0.9, 0.7
# Multiply-adds of a round of the innermost loop, up to which it is unrolled.
UNROLLED_PRODUCT = 112
# Instructions that fold the lanes of a dot product.
FOLDING = 9
# What the operands of a block of dot products may take of the second-level cache, and the rounds
# that it has at least.
FOLDED_BYTES = 640 * 1024
LEAST_ROUNDS = 40
# Loads of a vector whose elements are 2 to 4 apart, or further, against those of neighbours.
NEAR_LOAD, FAR_LOAD = 1.5, 4.0

# Attention ------------------------------------------------------------------------------------

# Bytes of all weights from which on an attention is computed block by block, and its least rows: 16
# heads of 64 to 1,024 rows of 64, with the gradient, 0.67 -> 0.79, 2.0 -> 2.1 (1 MB), 15 -> 8.9 (4
# MB), 58 -> 31 and 239 -> 117 ms (`python benchmarks/attention.py`).
ATTENTION_BYTES, ATTENTION_ROWS = 2 << 20, 16
# Vectors of queries, and keys, of a block of scores: with what belongs to it, it stays in the
# second-level cache.
ATTENTION_VECTORS, ATTENTION_KEYS = 4, 64

# Sorts ----------------------------------------------------------------------------------------

# Lines up to so many elements are counted, of 32 and of 64 bits; so many of a longer line are
# looked for.
COUNTED, COUNTED_WIDE = 128, 16
SOUGHT = 32
# For each element and pass.
SORT_STEP_SECONDS = 1.5e-9

# Time -----------------------------------------------------------------------------------------

# Per second, of full width; of products per second and byte of the vector's width, and the part of
# that where a vector or a tile isn't filled.
VECTOR_INSTRUCTIONS = 4.5e9
FLOPS_PER_VECTOR_BYTE = 2.8e9
SMALL_TILE_FLOPS = 0.5
# Bytes per second, up to the size of a cache and beyond it.
CACHE_BYTES = 1 << 20
CACHE_RATE = 60e9
MEMORY_RATE = 20e9
# Seconds for each lane that is read or written at an address of its own.
RANDOM_LANE = 1.2e-9
# A call of Python may take long.
HOST_SECONDS = 1e-3

# Threads --------------------------------------------------------------------------------------

# Handing work over takes half a microsecond, and what one processor wrote comes to another at some
# 40 GB/s. A few parts are enough to even out that one thread begins late; more of them cost claims.
WORTH_SECONDS = 6e-6
SHORT_PART_SECONDS, PART_SECONDS = 3e-6, 8e-6
LEAST_PARTS, MOST_PARTS = 4, 64
# A worker that is parked needs some 50 us to come; one that isn't waits for the next step as well.
WAKE_SECONDS = 40e-6
# How many rounds a loop is taken to have whose carry decides it.
ROUNDS = 64
# How long the caller waits for others before it takes their processors for lost: so many times the
# estimated time of a part, and some more. A round of waiting takes about 25 ns.
PATIENCE, LEAST_PATIENCE = 4.0, 1e-3
PAUSE_SECONDS = 25e-9
# After such a stall it runs regions alone for so many microseconds, and more if that happens often.
LEAST_ALONE, MOST_ALONE = 3_000, 200_000
# Calls from one trial of the threads to the next (a power of two), and calls of a trial. That of a
# longer step would be felt; its kernels are long enough for threads to help.
TRIAL_PERIOD, TRIAL_CALLS = 1024, 16
TRIAL_SECONDS = 20e-3

# Code -----------------------------------------------------------------------------------------

# Calls of kernels in one function: LLVM's time grows with the square of a function's length.
PART_CALLS = 64
# What a call takes on average where LLVM needn't optimize how it is made: that is a third of its
# time for a step of a thousand calls, and worth a few ns for each.
LONG_CALL_SECONDS = 2e-6
# Characters of a module: there should be several for each processor, and one costs 1 ms by itself.
PART_CHARACTERS = 200_000
# The same for the border of steps and of eager calls, which is compiled by itself.
ENTRY_CHARACTERS = 30_000
# Kernels of a program that are planned before LLVM begins with them.
FIRST_KERNELS = 8


def cost_of(op: str) -> int:
    """Roughly the vector instructions of one op."""
    return _OPS.get(op, 1)
