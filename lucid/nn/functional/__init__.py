"""Layers as functions: `import lucid.nn.functional as F`."""

import sys

from lucid.functions.border import enter_border
from lucid.functions.inplace import in_place
from lucid.functions.samples import pdist
from lucid.functions.softmax import log_softmax, softmax, softmin
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
    conv_transpose3d,
)
from lucid.nn.functional.ctc import ctc_loss
from lucid.nn.functional.distance import cosine_similarity, normalize, pairwise_distance
from lucid.nn.functional.dropout import dropout
from lucid.nn.functional.embedding import embedding, one_hot
from lucid.nn.functional.folding import fold, unfold
from lucid.nn.functional.grouped import group_norm, instance_norm, local_response_norm
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
    adaptive_avg_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from lucid.nn.functional.resizing import (
    affine_grid,
    channel_shuffle,
    grid_sample,
    interpolate,
    pixel_shuffle,
    pixel_unshuffle,
    upsample,
)
from lucid.nn.functional.similarity import (
    cosine_embedding_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    poisson_nll_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from lucid.nn.functional.threshold import (
    alpha_dropout,
    celu,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
    glu,
    gumbel_softmax,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    prelu,
    rrelu,
    selu,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
)
from lucid.nn.functional.unpooling import max_unpool1d, max_unpool2d, max_unpool3d
from lucid.nn.functional.volumes import (
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
)

relu_ = in_place(relu)
elu_ = in_place(elu)
celu_ = in_place(celu)
selu_ = in_place(selu)
leaky_relu_ = in_place(leaky_relu)
hardtanh_ = in_place(hardtanh)
threshold_ = in_place(threshold)
rrelu_ = in_place(rrelu)
enter_border(sys.modules[__name__], dict(vars()), __name__)

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "affine_grid",
    "alpha_dropout",
    "feature_alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "embedding_bag",
    "fold",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
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
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
]
