"""Layers as functions: `import lucid.nn.functional as F`."""

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
from lucid.nn.functional.classification import cross_entropy, nll_loss
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
from lucid.nn.functional.softmax import log_softmax, softmax, softmin

__all__ = [
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "gelu",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softmin",
    "softplus",
    "tanh",
]
