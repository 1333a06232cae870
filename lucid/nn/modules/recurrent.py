"""Recurrent layers: cells, and layers that scan a sequence with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import InitVar
from functools import cache
from operator import itemgetter
from typing import Any, ClassVar

import lucid
from lucid.autograd.native import composite
from lucid.autograd.rounds import Recurrence
from lucid.choices import check_choice
from lucid.device import check_device
from lucid.docstrings import like
from lucid.functions.arguments import kind_of
from lucid.ir.errors import ArgumentError, OptionError, ShapeError
from lucid.ir.types import DType
from lucid.nn import init
from lucid.nn.functional.activation import relu
from lucid.nn.functional.dropout import dropout as drop
from lucid.nn.functional.linear import linear
from lucid.nn.modules.module import Module
from lucid.nn.modules.settings import settings
from lucid.nn.parameter import Parameter
from lucid.nn.tracing import live_attribute
from lucid.nn.utils.rnn import PackedSequence
from lucid.tensor.tensor import Tensor

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

State = Any  # h, or (h, c)
Step = Callable[[Tensor, State, Tensor | None, Tensor], State]  # of x, h, bias and weight


@composite
def _tanh_step(x: Tensor, h: Tensor, bias: Tensor | None, weight: Tensor) -> Tensor:
    return (x + linear(h, weight, bias)).tanh()


@composite
def _relu_step(x: Tensor, h: Tensor, bias: Tensor | None, weight: Tensor) -> Tensor:
    return relu(x + linear(h, weight, bias))


@composite
def _lstm_step(
    x: Tensor, h: Tensor, c: Tensor, bias: Tensor | None, weight: Tensor
) -> tuple[Tensor, Tensor]:
    i, f, g, o = (x + linear(h, weight, bias)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def lstm_step(x: Tensor, state: State, bias: Tensor | None, weight: Tensor) -> State:
    """One step of a long short-term memory; gates in the order i, f, g, o.

    Reference: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997.
    """
    h, c = state
    return _lstm_step(x, h, c, bias, weight)


@composite
def gru_step(x: Tensor, h: Tensor, bias: Tensor | None, weight: Tensor) -> Tensor:
    """One step of a gated recurrent unit; gates in the order r, z, n.

    Reference: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014.
    """
    reset_x, update_x, new_x = x.chunk(3, -1)
    reset_h, update_h, new_h = linear(h, weight, bias).chunk(3, -1)
    reset, update = (reset_x + reset_h).sigmoid(), (update_x + update_h).sigmoid()
    new = (new_x + reset * new_h).tanh()
    return new + update * (h - new)


def _activation(nonlinearity: str) -> Step:
    check_choice(nonlinearity, "nonlinearity", "RNN", ("tanh", "relu"))
    return _tanh_step if nonlinearity == "tanh" else _relu_step


class _Recurrent(Module):
    """Weights of one or more cells, uniform in [-1/sqrt(hidden_size), 1/sqrt(hidden_size))."""

    gates = 1
    hidden_size: int
    nonlinearity: str
    proj_size = 0  # features that the output is projected to; 0: it isn't
    _has_cell = False  # whether the state is (h, c)
    _cell: ClassVar[Any] = None  # one step; None: that of the nonlinearity

    def _step(self) -> Step:
        return _activation(self.nonlinearity) if self._cell is None else self._cell

    @property
    def _features(self) -> int:
        """Those of the output, and of the state that goes with it."""
        return self.proj_size or self.hidden_size

    def _add_weights(self, suffix: str, inputs: int, bias: bool, dtype: DType | None) -> None:
        rows = self.gates * self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, inputs)}
        shapes["weight_hh"] = (rows, self._features)
        if bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"):
            made = Parameter(lucid.empty(shapes[name], dtype=dtype)) if name in shapes else None
            if made is not None or (not suffix and name != "weight_hr"):
                self.register_parameter(name + suffix, made)

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _zeros(self, x: Tensor, *shape: int) -> State:
        """A state of zeros, of this shape but for its features."""
        h = lucid.zeros(*shape, self._features, dtype=x.dtype)
        if not self._has_cell:
            return h
        return h, lucid.zeros(*shape, self.hidden_size, dtype=x.dtype)


@settings
class RNNCellBase(_Recurrent):
    """The base of the cells, one step of a sequence: `cell(input, state)` -> the new state.

    Shapes: input (n, i) or (i,), state (n, h) or (h,).

    Args:
        input_size: features of the input.
        hidden_size: features of the state.

    >>> isinstance(nn.GRUCell(3, 4), nn.RNNCellBase)
    True
    """

    input_size: int
    hidden_size: int
    bias: bool = True
    device: InitVar[object] = None
    dtype: InitVar[DType | None] = None

    def __post_init__(self, device: object, dtype: DType | None) -> None:
        check_device(device, type(self).__name__)
        self._add_weights("", self.input_size, self.bias, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor, hx: State = None) -> State:
        if input.ndim not in (1, 2) or input.shape[-1] != self.input_size:
            size = self.input_size
            raise ShapeError(f"{type(self).__name__}: input must be (n, {size}) or ({size},)")
        state = self._zeros(input, *input.shape[:-1]) if hx is None else hx
        projected = linear(input, self.weight_ih, self.bias_ih)
        return self._step()(projected, state, self.bias_hh, self.weight_hh)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


@like(RNNCellBase)
class RNNCell(RNNCellBase):
    """h' = tanh(W x + b + U h + c), or with relu.

    `forward(input, h)`: (n, input_size) and (n, hidden_size), zeros if not given; returns the new
    state.

    Args:
        nonlinearity: "tanh" or "relu".

    >>> nn.RNNCell(3, 4)(lucid.ones(2, 3)).shape
    lucid.Size([2, 4])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity


@like(RNNCellBase)
class LSTMCell(RNNCellBase):
    """One step of an LSTM: the state, given and returned, is (h, c).

    c' = f * c + i * g and h' = o * tanh(c'), where the gates i, f, o are sigmoids of W x + U h + b,
    and g is its tanh.

    >>> h, c = nn.LSTMCell(3, 4)(lucid.ones(2, 3))
    >>> h.shape
    lucid.Size([2, 4])
    """

    gates = 4
    _has_cell = True
    _cell = staticmethod(lstm_step)


@like(RNNCell)
class GRUCell(RNNCellBase):
    """One step of a GRU.

    `forward(input, h)`: (n, input_size) and (n, hidden_size), zeros if not given; returns the new
    state, h' = (1 - z) * n + z * h with z = sigmoid(W x + U h), r likewise, and n = tanh(W x + r *
    (U h)).
    """

    gates = 3
    _cell = staticmethod(gru_step)


@like(RNNCellBase)
@settings
class RNNBase(_Recurrent):
    """The base of RNN, LSTM and GRU: layers of cells, a `scan` of the sequence each.

    `layer(input, state)` returns the outputs and the state.

    Shapes: input (l, n, i), with batch_first (n, l, i), or (l, i); outputs the same with d * h for
    i; each state (layers * d, n, h), where d is 2 if bidirectional, else 1.

    Args:
        num_layers: how many layers there are.
        batch_first: the batch comes before the sequence.
        dropout: what all layers but the last one drop of their outputs while training.
        bidirectional: a second pass from the end.
        proj_size: features that an LSTM's output is projected to. Default: 0, none.

    Raises:
        OptionError: a size that isn't positive, `dropout` is no probability, or `proj_size` that
            there can't be.

    >>> isinstance(nn.LSTM(3, 4), nn.RNNBase), isinstance(nn.Linear(3, 4), nn.RNNBase)
    (True, False)
    """

    input_size: int
    hidden_size: int
    num_layers: int = 1
    bias: bool = True
    batch_first: bool = False
    dropout: float = 0.0
    bidirectional: bool = False
    proj_size: int = 0
    device: InitVar[object] = None
    dtype: InitVar[DType | None] = None

    def __post_init__(self, device: object, dtype: DType | None) -> None:
        name, proj_size, hidden_size = type(self).__name__, self.proj_size, self.hidden_size
        check_device(device, name)
        if hidden_size <= 0 or self.num_layers <= 0:
            count = "hidden_size" if hidden_size <= 0 else "num_layers"
            raise OptionError(f"{name}: {count} must be positive, not {getattr(self, count)}")
        if not 0.0 <= self.dropout <= 1.0:
            raise OptionError("dropout should be a number in range [0, 1]")
        if proj_size and not self._has_cell:
            raise OptionError(f"{name}: proj_size is only for LSTM, not RNN or GRU")
        if not 0 <= proj_size < hidden_size:
            problem = f"proj_size must be from 0 to below {hidden_size=}, not {proj_size}"
            raise OptionError(f"{name}: {problem}")
        for layer in range(self.num_layers):
            width = self._features * len(self._directions()) if layer else self.input_size
            for direction in self._directions():
                self._add_weights(f"_l{layer}{direction}", width, self.bias, dtype)
        self.reset_parameters()

    @property
    def mode(self) -> str:
        """The kind of its cells: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU"."""
        if self._cell is None:
            return f"RNN_{self.nonlinearity.upper()}"
        return "LSTM" if self._has_cell else "GRU"

    def _directions(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    @property
    def _all_weights(self) -> list[list[str]]:
        """The names of each layer's and direction's parameters."""
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        own = self._registered("_parameters")
        return [
            [name for kind in kinds if (name := f"{kind}_l{layer}{direction}") in own]
            for layer in range(self.num_layers)
            for direction in self._directions()
        ]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction: weights, then biases."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Parameter]:
        return [getattr(self, name) for name in self._flat_weights_names]

    def flatten_parameters(self) -> None:
        """Nothing to do: the weights need no special place."""

    def forward(self, input: Any, hx: State = None) -> tuple[Any, State]:
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        if not isinstance(input, Tensor):
            raise ArgumentError(
                f"{type(self).__name__}.forward: argument 'input' (position 1) must be Tensor or "
                f"PackedSequence, not {kind_of(input)}"
            )
        single = input.ndim == 2
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            size = self.input_size
            raise ShapeError(f"{type(self).__name__}: input must be (t, n, {size}) or (t, {size})")
        is_pair = isinstance(hx, (tuple, list)) and len(hx) == 2
        if hx is not None and self._has_cell and not is_pair:
            raise ArgumentError(f"{type(self).__name__}: hx must be (h, c), not {kind_of(hx)}")
        x = input.unsqueeze(1) if single else input
        if self.batch_first and not single:
            x = x.transpose(0, 1)
        rows = self.num_layers * len(self._directions())
        if hx is None:
            state = self._zeros(x, rows, x.shape[1])
        else:
            self._require_state(hx, rows, *(() if single else (x.shape[1],)))
            state = _each(hx, lambda h: h.unsqueeze(1)) if single else hx
        x, state = self._run(x, state)
        if single:
            return x.squeeze(1), _each(state, lambda h: h.squeeze(1))
        return (x.transpose(0, 1) if self.batch_first else x), state

    def _require_state(self, hx: State, *outer: int) -> None:
        """Raise unless a state has a row for each layer and direction, and the input's batch."""
        for state, name, width in zip(
            hx if self._has_cell else (hx,),
            "hc",
            (self._features, self.hidden_size),
            strict=False,
        ):
            shape, wanted = getattr(state, "shape", None), (*outer, width)
            if shape != wanted:
                found = kind_of(state) if shape is None else list(shape)
                problem = f"{name} of hx must be of shape {list(wanted)}, not {found}"
                raise ShapeError(f"{type(self).__name__}: {problem}")

    def _packed(self, sequence: PackedSequence, hx: State) -> tuple[PackedSequence, State]:
        """Run over sequences of different lengths: a state stays once its sequence is over."""
        x = sequence.padded
        rows = self.num_layers * len(self._directions())
        state = self._zeros(x, rows, x.shape[1]) if hx is None else hx
        self._require_state(state, rows, x.shape[1])
        reached = lucid.arange(x.shape[0]).unsqueeze(1) < sequence.lengths
        x, state = self._run(x, state, reached.unsqueeze(-1))
        return PackedSequence.of_padded(x, sequence.lengths), state

    def _run(self, x: Tensor, state: State, reached: Tensor | None = None) -> tuple[Tensor, State]:
        ends: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in self._directions():
                start = _each(state, itemgetter(len(ends)))
                output, end = self._scanned(x, start, f"_l{layer}{direction}", reached)
                outputs.append(output)
                ends.append(end)
            x = outputs[0] if len(outputs) == 1 else lucid.cat(outputs, -1)
            if layer < self.num_layers - 1 and self.training:
                x = drop(x, live_attribute(self, "dropout"), True)
        if self._has_cell:
            return x, tuple(lucid.stack([end[i] for end in ends]) for i in (0, 1))
        return x, lucid.stack(ends)

    def _scanned(
        self, x: Tensor, state: State, suffix: str, reached: Tensor | None
    ) -> tuple[Tensor, State]:
        """One layer in one direction; the input's projections are one product for all steps.

        reached: where a sequence is at a step (l, n, 1); None: everywhere.
        """
        backwards = suffix.endswith("_reverse")
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh") if self.bias else _WEIGHTS
        weights = [getattr(self, name + suffix) for name in names]
        w_x, w_h, b_x, b_h = weights if self.bias else (*weights, None, None)
        w_p = getattr(self, f"weight_hr{suffix}") if self.proj_size else None
        rounds = Recurrence(rounds_of(self._step()), b_h, w_h, w_p)
        start = state if self._has_cell else (state,)
        rows = (linear(x, w_x, b_x),) if reached is None else (linear(x, w_x, b_x), reached)
        end, (outputs,) = lucid.scan(rounds, tuple(start), rows, reverse=backwards)
        return outputs, end if self._has_cell else end[0]

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        for name, default in (defaults | {"bidirectional": False, "proj_size": 0}).items():
            value = getattr(self, name)
            if value != default:
                parts.append(f"{name}={value}")
        return ", ".join(parts)


@cache
def rounds_of(step: Step) -> Callable[..., Any]:
    """The rounds of a layer whose cell makes this step."""

    def recurrence(carry: Any, row: Any, shared: Any) -> Any:
        projected, *reached = row
        bias, weight, projection = shared
        state = carry if len(carry) > 1 else carry[0]
        new = step(projected, state, bias, weight)
        if projection is not None:
            new = linear(new[0], projection), new[1]
        if reached:
            new = _chosen(reached[0], new, state)
        new = new if len(carry) > 1 else (new,)
        return new, (new[0],)

    return recurrence


def _chosen(condition: Tensor, new: State, old: State) -> State:
    """The new state where the condition holds."""
    if isinstance(new, tuple):
        return tuple(lucid.where(condition, a, b) for a, b in zip(new, old, strict=True))
    return lucid.where(condition, new, old)


_WEIGHTS = ("weight_ih", "weight_hh")


def _each(state: State, function: Callable[[Tensor], Tensor]) -> State:
    return tuple(map(function, state)) if isinstance(state, (tuple, list)) else function(state)


class RNN(RNNBase):
    """Elman networks with tanh or relu.

    `forward(input, h)`, zeros if not given: h' = tanh(W x + U h + b).

    Shapes: input (t, n, input_size), or (t, input_size) without a batch; the result is (t, n,
    directions * hidden_size), and the last state (layers * directions, n, hidden_size). A compiled
    step records one round and runs it natively.

    Args:
        *args: input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, as in
            `GRU`.
        nonlinearity: "tanh" or "relu".
        **kwargs: the same, by name.

    >>> output, h = nn.RNN(3, 4)(lucid.ones(5, 2, 3))
    >>> output.shape, h.shape
    (lucid.Size([5, 2, 4]), lucid.Size([1, 2, 4]))
    """

    def __init__(self, *args: Any, nonlinearity: str = "tanh", **kwargs: Any) -> None:
        if len(args) > 3 and isinstance(args[3], str):  # PyTorch has it in fourth place
            args, nonlinearity = (*args[:3], *args[4:]), args[3]
        _activation(nonlinearity)
        super().__init__(*args, **kwargs)
        self.nonlinearity = nonlinearity


@like(RNNCellBase)
class LSTM(RNNBase):
    """Long short-term memories; the state is (h, c).

    `forward(input, (h, c))`, zeros if not given.

    Shapes: input (t, n, input_size), or (t, input_size) without a batch; the result is (t, n,
    directions * hidden_size), and the last state (layers * directions, n, hidden_size). A compiled
    step records one round and runs it natively.

    Args:
        num_layers: how many layers lie on top of each other.
        batch_first: input and result are (n, t, features), not (t, n, features).
        dropout: the probability of dropping between layers, while training.
        bidirectional: a second network goes from the end to the start; the results stand side by
            side.
        proj_size: features that h is projected to, at each step, fewer than `hidden_size`; 0 for no
            projection. The result and h have as many.

    Raises:
        OptionError: `proj_size` is negative, or not below `hidden_size`.

    >>> output, (h, c) = nn.LSTM(3, 4)(lucid.ones(5, 2, 3))
    >>> output.shape, h.shape, c.shape
    (lucid.Size([5, 2, 4]), lucid.Size([1, 2, 4]), lucid.Size([1, 2, 4]))
    """

    gates = 4
    _has_cell = True
    _cell = staticmethod(lstm_step)


@like(LSTM)
class GRU(RNNBase):
    """Gated recurrent units.

    `forward(input, h)`, zeros if not given.

    Shapes: input (t, n, input_size), or (t, input_size) without a batch; the result is (t, n,
    directions * hidden_size), and the last state (layers * directions, n, hidden_size). A compiled
    step records one round and runs it natively.

    Args:
        proj_size: 0; only what an LSTM gives can be projected.

    Raises:
        OptionError: a `proj_size`; a `dropout` outside of 0 to 1.

    >>> output, h = nn.GRU(3, 4)(lucid.ones(5, 2, 3))
    >>> output.shape, h.shape
    (lucid.Size([5, 2, 4]), lucid.Size([1, 2, 4]))
    """

    gates = 3
    _cell = staticmethod(gru_step)
