"""Every op by name, and small compositions of them: `from lucid.ir import ops; ops.add(a, b)`.

An op is callable on operands of any one class, IR values or tensors. Some names are those of
builtins (`ops.sum`, `ops.abs`, `ops.slice`), so import the module rather than its names.
"""

from lucid.ir.ops.arithmetic import *
from lucid.ir.ops.attention import *
from lucid.ir.ops.calls import *
from lucid.ir.ops.checks import *
from lucid.ir.ops.composites import *
from lucid.ir.ops.contraction import *
from lucid.ir.ops.creation import *
from lucid.ir.ops.functions import *
from lucid.ir.ops.indexing import *
from lucid.ir.ops.logic import *
from lucid.ir.ops.moves import *
from lucid.ir.ops.ordering import *
from lucid.ir.ops.random import *
from lucid.ir.ops.reductions import *
from lucid.ir.ops.scans import *
from lucid.ir.ops.views import *
from lucid.ir.ops.windows import *
