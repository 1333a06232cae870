"""Encoder and decoder layers of the transformer, and stacks of them.

Reference: Vaswani et al., "Attention Is All You Need", 2017.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import lucid
from lucid.choices import check_choice, check_flag
from lucid.docstrings import like
from lucid.ir.types import DType
from lucid.nn import init
from lucid.nn.functional.activation import gelu, relu
from lucid.nn.modules.attention import MultiheadAttention
from lucid.nn.modules.container import ModuleList
from lucid.nn.modules.dropout import Dropout
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.module import Module
from lucid.nn.modules.normalization import LayerNorm
from lucid.tensor.tensor import Tensor

__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip

Activation = Callable[[Tensor], Tensor]


def _get_activation_fn(activation: str | Activation) -> Activation:
    if not isinstance(activation, str):
        return activation
    check_choice(activation, "activation", "a transformer's layer", ("relu", "gelu"))
    return relu if activation == "relu" else gelu


class _Layer(Module):
    """Attention to oneself, then two affine maps; each added to its input and normalized."""

    attentions: tuple[str, ...] = ("self_attn",)

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        options: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        for name in self.attentions:
            made = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, **options)
            self.add_module(name, made)
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        self.norm_first = norm_first
        for i in range(len(self.attentions) + 1):
            self.add_module(f"norm{i + 1}", LayerNorm(d_model, eps=layer_norm_eps, **options))
        for i in range(len(self.attentions) + 1):
            self.add_module(f"dropout{i + 1}", Dropout(dropout))
        self.activation = _get_activation_fn(activation)

    # PyTorch's names of the blocks: layers of users replace single ones of them.

    def _sa_block(
        self,
        x: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        options = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
        attended, _ = self.self_attn(x, x, x, need_weights=False, is_causal=is_causal, **options)
        result: Tensor = self.dropout1(attended)
        return result

    def _ff_block(self, x: Tensor) -> Tensor:
        inner = self.linear2(self.dropout(self.activation(self.linear1(x))))
        result: Tensor = getattr(self, f"dropout{len(self.attentions) + 1}")(inner)
        return result

    def _added(self, norm: str, x: Tensor, block: Activation) -> Tensor:
        """x + block(x), normalized before the block or after the sum."""
        normalize = getattr(self, norm)
        result: Tensor
        result = x + block(normalize(x)) if self.norm_first else normalize(x + block(x))
        return result


class TransformerEncoderLayer(_Layer):
    """Attention to oneself and a feed-forward network.

    Each is followed by dropout, added to its input, and standardized; sequences are (t, n,
    d_model), or (n, t, d_model) with `batch_first`.

    Reference: Vaswani et al., "Attention Is All You Need", 2017.

    Args:
        d_model: features of the sequences.
        nhead: how many heads attention has.
        dim_feedforward: features within the feed-forward network.
        dropout: the probability of dropping, while training.
        activation: between its two layers: "relu", "gelu" or a function.
        layer_norm_eps: of the layer norms.
        batch_first: sequences are (n, t, d_model).
        norm_first: standardize before each block, not after it.
        bias: whether layers have one.

    >>> nn.TransformerEncoderLayer(8, 2, 16)(lucid.ones(5, 1, 8)).shape
    lucid.Size([5, 1, 8])
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        masks = src_mask, src_key_padding_mask
        x = self._added("norm1", src, lambda x: self._sa_block(x, *masks, is_causal=is_causal))
        return self._added("norm2", x, self._ff_block)


@like(TransformerEncoderLayer)
class TransformerDecoderLayer(_Layer):
    """Attention to oneself and to the memory, and a feed-forward network.

    `forward(tgt, memory)`; each is followed by dropout, added to its input, and standardized;
    sequences are (t, n, d_model), or (n, t, d_model) with `batch_first`.

    Reference: Vaswani et al., "Attention Is All You Need", 2017.

    >>> nn.TransformerDecoderLayer(8, 2, 16)(lucid.ones(5, 1, 8), lucid.ones(3, 1, 8)).shape
    lucid.Size([5, 1, 8])
    """

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        own = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        cross = memory_mask, memory_key_padding_mask, memory_is_causal
        x = self._added("norm1", tgt, lambda x: self._sa_block(x, *own))
        x = self._added("norm2", x, lambda x: self._mha_block(x, memory, *cross))
        return self._added("norm3", x, self._ff_block)

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        options = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
        attended, _ = self.multihead_attn(
            x, mem, mem, need_weights=False, is_causal=is_causal, **options
        )
        result: Tensor = self.dropout2(attended)
        return result


def _get_clones(module: Module, N: int) -> ModuleList:
    """So many copies of a module."""
    return ModuleList([copy.deepcopy(module) for _ in range(N)])


class _Stack(Module):
    """Copies of a layer, one after the other, and a last normalization."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        self.layers = _get_clones(layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def _passed(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *args, **kwargs)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """Encoder layers, one after the other.

    The layers are copies of one, which start with equal parameters.

    Args:
        encoder_layer: what is copied.
        num_layers: how many copies.
        enable_nested_tensor: True or False; padding is masked with either.
        mask_check: True or False; masks are checked with either.

    Raises:
        ArgumentError: a flag that is no bool.

    >>> layer = nn.TransformerEncoderLayer(8, 2, 16)
    >>> nn.TransformerEncoder(layer, 2)(lucid.ones(5, 1, 8)).shape
    lucid.Size([5, 1, 8])
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        check_flag(enable_nested_tensor, "enable_nested_tensor", "TransformerEncoder")
        check_flag(mask_check, "mask_check", "TransformerEncoder")
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        return self._passed(
            src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal)
        )


class TransformerDecoder(_Stack):
    """Decoder layers, one after the other.

    `forward(tgt, memory)`. The layers are copies of one, which start with equal parameters.

    Args:
        decoder_layer: what is copied.
        num_layers: how many copies.

    >>> layer = nn.TransformerDecoderLayer(8, 2, 16)
    >>> nn.TransformerDecoder(layer, 2)(lucid.ones(5, 1, 8), lucid.ones(3, 1, 8)).shape
    lucid.Size([5, 1, 8])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        return self._passed(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=bool(tgt_is_causal),
            memory_is_causal=memory_is_causal,
        )


def generate_square_subsequent_mask(
    sz: int, device: object = None, dtype: DType | None = None
) -> Tensor:
    """The causal mask (sz, sz): 0 on and below the diagonal, -inf above."""
    return lucid.full((sz, sz), -math.inf, dtype=dtype, device=device).triu(1)


@like(TransformerEncoderLayer)
class Transformer(Module):
    """An encoder and a decoder that attends to its result.

    `forward(src, tgt)`; sequences are (t, n, d_model), or (n, t, d_model) with `batch_first`. All
    matrices start uniform, as `init.xavier_uniform_` draws them.

    Reference: Vaswani et al., "Attention Is All You Need", 2017.

    Args:
        d_model: features of the sequences.
        nhead: how many heads attention has.
        num_encoder_layers: layers of the encoder.
        num_decoder_layers: layers of the decoder.
        dim_feedforward: features within the feed-forward networks.
        custom_encoder: a module instead of the encoder, or None.
        custom_decoder: a module instead of the decoder, or None.

    >>> nn.Transformer(8, 2, 1, 1, 16)(lucid.ones(5, 1, 8), lucid.ones(3, 1, 8)).shape
    lucid.Size([3, 1, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        layer: dict[str, Any] = {
            "dim_feedforward": dim_feedforward, "dropout": dropout, "activation": activation,
            "layer_norm_eps": layer_norm_eps, "batch_first": batch_first, "norm_first": norm_first,
            **made,
        }  # fmt: skip
        if custom_encoder is None:
            custom_encoder = TransformerEncoder(
                TransformerEncoderLayer(d_model, nhead, **layer),
                num_encoder_layers,
                LayerNorm(d_model, eps=layer_norm_eps, **made),
            )
        self.encoder = custom_encoder
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(
                TransformerDecoderLayer(d_model, nhead, **layer),
                num_decoder_layers,
                LayerNorm(d_model, eps=layer_norm_eps, **made),
            )
        self.decoder = custom_decoder
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        """Draw all matrices anew."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    generate_square_subsequent_mask = staticmethod(generate_square_subsequent_mask)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        result: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
        return result
