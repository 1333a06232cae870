"""Layers as functions: `import lucid.nn.functional as F`."""

import sys

from lucid.functions.border import enter_border
from lucid.nn.functional.activation import (
    elu,
    gelu,
    leaky_relu,
    logsigmoid,
    mish,
    relu,
    relu6,
    sigmoid,
    silu,
    softplus,
    tanh,
)
from lucid.nn.functional.attention import scaled_dot_product_attention
from lucid.nn.functional.bags import bilinear, embedding_bag
from lucid.nn.functional.classification import cross_entropy, nll_loss
from lucid.nn.functional.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
)
from lucid.nn.functional.distance import cosine_similarity, normalize, pairwise_distance
from lucid.nn.functional.dropout import dropout
from lucid.nn.functional.embedding import embedding, one_hot
from lucid.nn.functional.linear import linear
from lucid.nn.functional.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    smooth_l1_loss,
)
from lucid.nn.functional.normalization import batch_norm, layer_norm, rms_norm
from lucid.nn.functional.padding import pad
from lucid.nn.functional.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
    max_pool1d,
    max_pool2d,
)
from lucid.nn.functional.similarity import (
    cosine_embedding_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_soft_margin_loss,
    poisson_nll_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from lucid.nn.functional.softmax import log_softmax, softmax, softmin
from lucid.nn.functional.threshold import (
    celu,
    dropout1d,
    dropout2d,
    glu,
    gumbel_softmax,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    prelu,
    selu,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
)

enter_border(sys.modules[__name__], dict(vars()), __name__)

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "dropout1d",
    "dropout2d",
    "elu",
    "embedding",
    "embedding_bag",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "mish",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]
