"""Layers as functions: `import lucid.nn.functional as F`.

Args:
    input: the tensor, of a float dtype.
    reduction: "none" for each element's loss, "sum", or "mean" over them. The keywords of older
        programs, `size_average=False` for "sum" and `reduce=False` for "none", are taken as well.
    eps: keeps the division finite.
    kernel_size: the size of a window; an int, or one for each axis.
    dilation: the distance between the elements of a window.
    dim: the axis.
    inplace: write the result into `input` and return that.
    norm_type: of which order that norm is.
    sparse: False; gradients are dense.
"""

import sys

from lucid.functions import border
from lucid.functions.distances import pdist as pdist
from lucid.functions.softmax import *
from lucid.nn.functional.activation import *
from lucid.nn.functional.attention import *
from lucid.nn.functional.classification import *
from lucid.nn.functional.convolution import *
from lucid.nn.functional.ctc import *
from lucid.nn.functional.distance import *
from lucid.nn.functional.dropout import *
from lucid.nn.functional.embedding import *
from lucid.nn.functional.folding import *
from lucid.nn.functional.linear import *
from lucid.nn.functional.loss import *
from lucid.nn.functional.margin import *
from lucid.nn.functional.normalization import *
from lucid.nn.functional.padding import *
from lucid.nn.functional.pooling import *
from lucid.nn.functional.resizing import *

vars()["__all__"] = border.public_names(vars())
border.enter_border(sys.modules[__name__], dict(vars()), __name__)
