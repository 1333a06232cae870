"""Random numbers: counter-based, the same bits in eager and compiled code.

A generator's state is a tensor i64[2] of seed and offset. A draw of n numbers uses the counters
from the offset on and moves it by n: in a compiled step the state is read and written as any other.

Args:
    generator: what to draw from; None is the default generator.
    device: the CPU or None.
    input: a tensor of floats.
    requires_grad: whether gradients are recorded for it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Unpack

import numpy as np

from lucid.autograd.native import program
from lucid.device import check_device, device
from lucid.docstrings import like, maps
from lucid.dtypes import as_dtype, get_default_dtype
from lucid.functions.arguments import common_shape, integer, is_live, shape_of, tensor_of, typed
from lucid.functions.checks import require
from lucid.functions.conversion import cast
from lucid.functions.elementwise import clone
from lucid.functions.finding import computed
from lucid.functions.from_data import as_leaf
from lucid.functions.options import LikeOptions, TensorOptions, taken, with_options
from lucid.functions.promotion import Number
from lucid.functions.shape import broadcast
from lucid.functions.sorting import searchsorted
from lucid.functions.tensors import Tensor
from lucid.functions.transcendental import log1p
from lucid.ir import frames, ops
from lucid.ir.errors import DTypeError, OptionError, ShapeError
from lucid.ir.op import Op
from lucid.ir.types import DType, Shape, f64, i64, limits_of, type_of_array
from lucid.layouts import check_memory_format
from lucid.tensor.context import context, within
from lucid.tensor.core import constant, emit, of_array
from lucid.tensor.writing import add_array, write_

__all__ = [
    "Generator", "bernoulli", "binomial", "default_generator", "get_rng_state", "initial_seed",
    "manual_seed", "multinomial", "normal", "poisson", "rand", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "randperm", "seed", "set_rng_state",
]  # fmt: skip

_DEFAULT_SEED = 67280421310721


class Generator:
    """A stream of random numbers, with a seed and a place in it.

    The numbers are counter-based: each is a function of seed and place alone, so eager and compiled
    code draw the same bits, with any number of threads.

    Args:
        device: the CPU.

    Attributes:
        state: i64[2], seed and place; a compiled step that draws reads and writes it.

    >>> generator = lucid.Generator().manual_seed(7)
    >>> lucid.randint(10, (4,), generator=generator)
    tensor([9, 4, 0, 3])
    >>> generator.get_state()
    tensor([7, 4])
    """

    def __init__(self, device: Any = "cpu") -> None:
        check_device(device, "Generator")
        self._state: Tensor | None = None

    @property
    def state(self) -> Tensor:
        """Seed and place in the stream, i64[2]: the tensor itself, which draws write to."""
        if self._state is None:  # the default generator is older than `Tensor`
            self._state = of_array(np.array([_DEFAULT_SEED, 0], np.int64))
        return self._state

    @property
    def device(self) -> device:
        """Where the stream's numbers are made: the CPU, the only device."""
        return device()

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of this seed from its beginning, and return the generator.

        Args:
            seed: an int of at most 64 bits, signed or unsigned.

        Raises:
            OptionError: it has more bits.

        >>> generator = lucid.Generator().manual_seed(7)
        >>> generator.initial_seed()
        7
        """
        is_read = is_live(seed) and isinstance(seed, int)  # at each call of a step
        number = seed if is_read else integer(seed, "manual_seed", "seed")
        if not -(2**63) <= number < 2**64:
            raise OptionError(f"manual_seed: overflow: {number} has more than 64 bits")
        signed = number - 2**64 if number >= 2**63 else number
        within({"grad_enabled": False}, write_, self.state, _pair(signed, 0))
        return self

    def seed(self) -> int:
        """Start a stream with a seed from the operating system, and return that seed.

        It is what makes a run differ from the last one; keep the number to repeat the run with
        `manual_seed`.

        >>> generator = lucid.Generator()
        >>> generator.seed() == generator.initial_seed()
        True
        """
        number = int.from_bytes(os.urandom(8), "little", signed=True) & (2**63 - 1)
        self.manual_seed(number)
        return number

    def initial_seed(self) -> int:
        """Return the seed that the stream was started with, as an int.

        >>> lucid.Generator().manual_seed(3).initial_seed()
        3
        """
        seed: int = self.state[0].item()
        return seed

    def get_state(self) -> Tensor:
        """Return a copy of the state, to come back to this place in the stream by `set_state`.

        Shapes: (2,), seed and place.
        dtype: int64.

        >>> lucid.Generator().manual_seed(3).get_state()
        tensor([3, 0])
        """
        return self.state.clone()

    def set_state(self, new_state: Tensor) -> Generator:
        """Continue from a state that `get_state` returned, and return the generator.

        Args:
            new_state: i64[2], whose numbers are copied.

        Raises:
            ShapeError: it is no tensor of two int64.

        >>> generator = lucid.Generator().manual_seed(3)
        >>> before = generator.get_state()
        >>> first = lucid.rand(2, generator=generator)
        >>> again = lucid.rand(2, generator=generator.set_state(before))
        >>> lucid.equal(first, again)
        True
        """
        state = tensor_of(new_state, "set_state", "new_state")
        if state._type.dtype is not i64 or state._type.shape != (2,):
            raise ShapeError(f"set_state: the state is i64[2], not {state._type}")
        within({"grad_enabled": False}, write_, self.state, state)
        return self

    def draw(self, op: Op, shape: Shape, dtype: DType) -> Tensor:
        """Draw numbers by an op, and move on by as many.

        In a vmap the numbers of all examples are counted.

        Args:
            op: of the state, such as `lucid.ir.ops.random_uniform`.
            shape: of the result.
            dtype: of the result.

        >>> from lucid.ir import ops
        >>> generator = lucid.Generator().manual_seed(3)
        >>> numbers = generator.draw(ops.random_normal, (2, 3), lucid.float32)
        >>> generator.get_state()
        tensor([3, 6])
        """
        result = emit(op, (self.state,), shape=shape, dtype=dtype)
        self._advance(self._used(result))
        return result

    def _advance(self, count: int) -> None:
        if context.recorder is None and context.forward is None and not context.levels:
            add_array(self.state, _moved(count))
            return
        write_(self.state, emit(ops.add, (self.state, _pair(0, count))))

    def reserve(self, count: int) -> Tensor:
        """Return the state from which `count` numbers are to be drawn, and move on behind them.

        Args:
            count: how many numbers.

        >>> generator = lucid.Generator().manual_seed(3)
        >>> generator.reserve(5)
        tensor([3, 0])
        >>> generator.get_state()
        tensor([3, 5])
        """
        before = self.get_state()
        self._advance(count)
        return before

    def _used(self, drawn: Tensor) -> int:
        """How many numbers were drawn; in a vmap, for all examples."""
        if not context.levels:
            return drawn._type.size
        from lucid.tensor.batched import drawn_numbers

        return drawn_numbers(drawn)


@lru_cache
def _moved(count: int) -> np.ndarray:
    return np.array((0, count), np.int64)


def _pair(first: int, second: int) -> Tensor:
    if context.recorder is None:
        return of_array(np.array((first, second), np.int64))
    index = emit(ops.iota, (), shape=(2,), axis=0, dtype=i64)
    return emit(ops.where, (index == 0, constant(first, i64), constant(second, i64)))


default_generator = Generator()


@like(Generator.manual_seed)
def manual_seed(seed: int) -> Generator:
    """Start the default generator's stream of this seed from its beginning, and return it.

    All functions that draw without a `generator` draw from it.

    >>> generator = lucid.manual_seed(0)
    >>> lucid.randint(10, (3,))
    tensor([3, 9, 0])
    >>> generator = lucid.manual_seed(0)
    >>> lucid.randint(10, (3,))
    tensor([3, 9, 0])
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system, and return the seed.

    >>> number = lucid.seed()
    >>> number == lucid.initial_seed()
    True
    """
    return default_generator.seed()


def initial_seed() -> int:
    """Return the seed that the default generator's stream was started with.

    Without one of the user's it is the same in each process.

    >>> generator = lucid.manual_seed(5)
    >>> lucid.initial_seed()
    5
    """
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Return a copy of the default generator's state, to come back to by `set_rng_state`.

    Shapes: (2,), the seed and the place in its stream.
    dtype: int64.

    >>> generator = lucid.manual_seed(5)
    >>> numbers = lucid.rand(3)
    >>> lucid.get_rng_state()
    tensor([5, 3])
    """
    return default_generator.get_state()


@like(Generator.set_state)
def set_rng_state(new_state: Tensor) -> None:
    """Continue the default generator from a state that `get_rng_state` returned.

    >>> before = lucid.get_rng_state()
    >>> first = lucid.rand(2)
    >>> lucid.set_rng_state(before)
    >>> lucid.equal(lucid.rand(2), first)
    True
    """
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(
    devices: object = None, enabled: bool = True, device_type: str = "cpu"
) -> Iterator[None]:
    """Put the default generator's state back at the end of the block, whatever it has drawn.

    It does so also when the block raises.

    Args:
        devices: without effect, the state is the CPU's.
        enabled: False leaves the state as the block leaves it.
        device_type: without effect.

    >>> generator = lucid.random.manual_seed(5)
    >>> with lucid.random.fork_rng():
    ...     numbers = lucid.random.rand(3)
    >>> lucid.random.get_rng_state()
    tensor([5, 0])
    """
    if not enabled:
        yield
        return
    before = get_rng_state().clone()
    try:
        yield
    finally:
        set_rng_state(before)


def _drawn(
    op: Op, size: tuple[Any, ...], generator: Generator | None, name: str, **options: Any
) -> Tensor:
    dtype, requires_grad = taken(name, **options)
    if not dtype.is_floating_point:
        raise DTypeError(f"{name}: draws floating-point numbers, not {dtype!r}\nhint: randint")
    result = (generator or default_generator).draw(op, shape_of(size, name), dtype)
    return as_leaf(result, requires_grad)


def _drawn_like(
    op: Op,
    input: Tensor,
    generator: Generator | None,
    name: str,
    memory_format: object = None,
    **options: Any,
) -> Tensor:
    check_memory_format(memory_format, name)
    options["dtype"] = options.get("dtype") or input.dtype
    return _drawn(op, (input._type.shape,), generator, name, **options)


@with_options
def rand(
    *size: Any, generator: Generator | None = None, **options: Unpack[TensorOptions]
) -> Tensor:
    """Return uniform numbers from [0, 1): `rand(2, 3)` and `rand((2, 3))` are the same.

    Args:
        *size: the shape, as ints or as one tuple or list of them.
        dtype: of the result, one of floats. Default: the default dtype.

    Raises:
        DTypeError: the dtype isn't one of floats; `randint` draws integers.
        ShapeError: a size is negative.

    >>> x = lucid.rand(100)
    >>> ((x >= 0) & (x < 1)).all()
    tensor(True)
    """
    return _drawn(ops.random_uniform, size, generator, "rand", **options)


@like(rand)
@with_options
def randn(
    *size: Any, generator: Generator | None = None, **options: Unpack[TensorOptions]
) -> Tensor:
    """Return numbers from the standard normal distribution, of mean 0 and variance 1.

    `randn(2, 3)` and `randn((2, 3))` are the same.

    Raises:
        DTypeError: the dtype isn't one of floats.
        ShapeError: a size is negative.

    >>> generator = lucid.manual_seed(0)
    >>> x = lucid.randn(10000)
    >>> x.mean().abs() < 0.05, (x.std() - 1).abs() < 0.05
    (tensor(True), tensor(True))
    """
    return _drawn(ops.random_normal, size, generator, "randn", **options)


@with_options
def rand_like(
    input: Tensor, *, generator: Generator | None = None, **options: Unpack[LikeOptions]
) -> Tensor:
    """Return uniform numbers from [0, 1) in the shape and dtype of `input`.

    Args:
        input: whose shape and dtype are taken.
        dtype: another dtype of floats. Default: None, that of `input`.
        memory_format: any memory format, without effect.

    Raises:
        DTypeError: the dtype isn't one of floats.

    >>> lucid.rand_like(lucid.zeros(2, 3)).shape
    lucid.Size([2, 3])
    """
    return _drawn_like(ops.random_uniform, input, generator, "rand_like", **options)


@like(rand_like)
@with_options
def randn_like(
    input: Tensor, *, generator: Generator | None = None, **options: Unpack[LikeOptions]
) -> Tensor:
    """Return numbers from the standard normal distribution in the shape and dtype of `input`.

    >>> lucid.randn_like(lucid.zeros(2, dtype=lucid.float64)).dtype
    lucid.float64
    """
    return _drawn_like(ops.random_normal, input, generator, "randn_like", **options)


@with_options
def randint(
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    **options: Unpack[TensorOptions],
) -> Tensor:
    """Return integers from [low, high): `randint(10, (3,))` or `randint(5, 10, (3,))`.

    With two arguments they are the upper limit and the size, and the lower limit is 0.

    dtype: int64 by default.

    Args:
        low: the least number; with two arguments the limit.
        high: the limit, which isn't drawn; with two arguments the size.
        size: the shape, a tuple or list.
        dtype: of the result. Default: int64.
        requires_grad: whether gradients are recorded for it, which needs a dtype of floats.

    Raises:
        OptionError: the range is empty, or longer than 2**53.

    >>> x = lucid.randint(5, 10, (100,))
    >>> ((x >= 5) & (x < 10)).all()
    tensor(True)
    """
    if size is None:
        low, high, size = 0, low, high
    dtype, requires_grad = taken("randint", i64, **options)
    bounds = ((low, "low"), (high, "high"))
    first, last = (  # a live number stays one
        x if x.__class__ is int else integer(x, "randint", name) for x, name in bounds
    )
    if not 0 < last - first <= 2**53:
        raise OptionError(f"randint: low={first} must be below high={last}, by at most 2**53")
    stream = generator or default_generator
    uniform = stream.draw(ops.random_uniform, shape_of((size,), "randint"), f64)
    whole = _whole(uniform, constant(last - first, f64), constant(first, i64))
    return as_leaf(cast(whole, dtype), requires_grad)


@program
def _whole(uniform: Tensor, count: Tensor, first: Tensor) -> Tensor:
    return cast(uniform * count, i64) + first  # the cast truncates: it isn't negative


@with_options
@maps("lucid.zeros(3)", "1", "[0., 0., 0.]")
def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    generator: Generator | None = None,
    **options: Unpack[TensorOptions],
) -> Tensor:
    """Return integers from [low, high), or [0, low), in the shape and dtype of `input`.

    Args:
        input: whose shape and dtype are taken.
        low: the least number; without `high` the limit.
        high: the limit, which isn't drawn.
        dtype: another dtype. Default: None, that of `input`.

    Raises:
        OptionError: the range is empty, or longer than 2**53.
    """
    if high is None:
        low, high = 0, low
    options["dtype"] = options.get("dtype") or input.dtype
    return randint(low, high, input._type.shape, generator=generator, **options)


def randperm(
    n: int, *, generator: Generator | None = None, dtype: DType | None = None, device: Any = None
) -> Tensor:
    """Return the integers from 0 to n - 1 in random order.

    It sorts n random keys, all orders being as likely.

    Args:
        n: how many integers, at least 0.
        dtype: of the result. Default: int64.

    Raises:
        ShapeError: n is negative.

    >>> lucid.randperm(5).sort().values
    tensor([0, 1, 2, 3, 4])
    """
    check_device(device, "randperm")
    shape = shape_of((integer(n, "randperm", "n"),), "randperm")
    keys = (generator or default_generator).draw(ops.random_uniform, shape, f64)
    order = emit(ops.argsort, (keys,), axis=0, descending=False)
    return cast(order, i64 if dtype is None else as_dtype(dtype, "randperm"))


@maps("[1.0, 10.0, 100.0]", "0.0", "[  1.,  10., 100.]")
@with_options
def normal(
    mean: Number | Tensor = 0.0,
    std: Number | Tensor = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    **options: Unpack[TensorOptions],
) -> Tensor:
    """Return numbers from normal distributions: `mean + std * randn(size)`.

    Without a size, tensors say the shape: each element has a mean and a standard deviation of its
    own. No gradient flows to them: it does to those of `lucid.distributions.Normal.rsample`.

    Shapes: of `size`, or that to which the tensors `mean` and `std` broadcast.
    dtype: that of the first tensor, else the default dtype.

    Args:
        mean: a number or a tensor.
        std: the standard deviation, a number or a tensor, not negative.
        size: the shape. Default: None, that of the tensors.
        dtype: of the result. Default: None, as above.

    Raises:
        ShapeError: there is neither a size nor a tensor.
        OptionError: `std` is negative.
    """
    mean, std = (_fixed(x) if isinstance(x, Tensor) else x for x in (mean, std))
    tensors = [value for value in (mean, std) if isinstance(value, Tensor)]
    default = tensors[0].dtype if tensors else get_default_dtype()
    dtype, requires_grad = taken("normal", default, **options)
    if size is None:
        if not tensors:
            raise ShapeError("normal: numbers for mean and std need a size")
        named = {"mean": mean, "std": std}
        given = {name: x for name, x in named.items() if isinstance(x, Tensor)}
        shape = common_shape("normal", **given)
    else:
        shape = shape_of((size,), "normal")
    _check_std(std, "normal")
    numbers = (generator or default_generator).draw(ops.random_normal, shape, dtype)
    return as_leaf(cast(numbers * std + mean, dtype), requires_grad)


@maps("[0.0, 1.0, 1.0]", "[0., 1., 1.]")
def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None
) -> Tensor:
    """Return 1 with the probability of each element of `input`, or with `p`, and else 0.

    No gradient flows to the probabilities.

    Shapes: that of `input`.
    dtype: that of `input`.

    Args:
        input: probabilities; with `p` only its shape and dtype count.
        p: one probability for all.

    Raises:
        DTypeError: the probabilities are no floats.
        OptionError: `p`, or an element, isn't in [0, 1].
    """
    x = tensor_of(input, "bernoulli")
    probability: Any = x if p is None else p
    if p is None and not x.dtype.is_floating_point:
        raise DTypeError(f"bernoulli: probabilities are floating-point numbers, not {x.dtype!r}")
    return cast(_chosen(x, probability, generator), x.dtype)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Return how many events come where `input` come on average: whole numbers.

    NumPy draws them, from a stream of its own for each place in the generator's: a compiled step
    calls it there. No gradient flows to the rates.

    Shapes: that of `input`.
    dtype: that of `input`.

    Args:
        input: rates, floats from 0 on.

    Raises:
        DTypeError: the rates are no floats.
        OptionError: a rate is negative, or so large that counts have no 64 bits.

    >>> lucid.poisson(lucid.full((1000,), 4.0)).mean().round()
    tensor(4.)
    """
    rate = _fixed(tensor_of(input, "poisson"))
    if not rate.dtype.is_floating_point:
        raise DTypeError(f"poisson: rates are floating-point numbers, not {rate.dtype!r}")
    state = (generator or default_generator).reserve(rate._type.size)
    return computed("poisson", _counts, [rate, state])[0]


def _counts(rate: np.ndarray, state: np.ndarray) -> Sequence[np.ndarray]:
    """How many events come, in a stream that no other seed and place of a generator has.

    Raises:
        OptionError: a rate is negative, or too large.
    """
    least, greatest = (rate.min(), rate.max()) if rate.size else (0, 0)
    if not least >= 0:
        raise OptionError(f"poisson: rates must be at least 0\n  input: {type_of_array(rate)}")
    if greatest > 2.0**62:
        raise OptionError(f"Poisson: can't sample a rate of {greatest}: counts have 64 bits")
    stream = np.random.Generator(np.random.Philox(key=state.view(np.uint64)))
    return [np.asarray(stream.poisson(rate), rate.dtype)]


@maps("[3.0, 5.0]", "[1.0, 0.0]", "[3., 0.]")
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Return how many of `count` independent trials succeed, each with the probability `prob`.

    A compiled step runs op by op, since the greatest count decides. No gradient flows.

    Shapes: both broadcast to one shape, the result's.
    dtype: that of `prob`.

    Args:
        count: whole numbers from 0 on, in a float dtype.
        prob: probabilities, of the dtype of `count`.

    Raises:
        DTypeError: they are no floats, or the dtypes differ.
        OptionError: a count is negative, or a probability isn't in [0, 1].
    """
    n, p = tensor_of(count, "binomial", "count"), tensor_of(prob, "binomial", "prob")
    if not p.dtype.is_floating_point or n.dtype is not p.dtype:
        raise DTypeError(f"binomial: takes floats of one dtype{typed(count=n, prob=p)}")
    require(n >= 0, "binomial: counts must be at least 0", count=n)
    require(_is_probability(p), "binomial: probabilities must be in [0, 1]", prob=p)
    shape = common_shape("binomial", count=n, prob=p)
    trials = int(n.max().item()) if n.numel() else 0
    axes = (trials, *(1,) * len(shape))
    u = rand((trials, *shape), dtype=p.dtype, generator=generator)
    number = emit(ops.iota, (), shape=axes, axis=0, dtype=p.dtype)
    return cast((u < p.detach()) & (number < n.detach()), p.dtype).sum(0)


def _is_number(value: Any) -> bool:
    """Whether it is a number, or one that a compiled step reads at each call."""
    return isinstance(value, (int, float))


def _check_std(std: Any, name: str) -> None:
    if isinstance(std, Tensor):
        require(std >= 0, f"{name}: expects all elements of std >= 0.0", std=std)
    elif _is_number(std) and not std >= 0:
        raise OptionError(f"{name}: expects std >= 0.0, but found std {std}")


def _chosen(x: Tensor, probability: Any, generator: Generator | None) -> Tensor:
    """Bools of the shape of `x`, true with the given probability."""
    number = isinstance(probability, (int, float))
    if number and not 0 <= probability <= 1:
        raise OptionError(f"bernoulli: expects p to be in [0, 1], but got p={probability}")
    if isinstance(probability, Tensor):
        require(_is_probability(probability), "bernoulli: expects p to be in [0, 1]", p=probability)
    dtype = x.dtype if x.dtype.is_floating_point else get_default_dtype()
    stream = generator or default_generator
    uniform = stream.draw(ops.random_uniform, x._type.shape, dtype)
    return uniform < (_fixed(probability) if isinstance(probability, Tensor) else probability)


def _fixed(x: Tensor) -> Tensor:
    """What a draw goes by, to which no gradient flows."""
    return x.detach() if x.requires_grad else x


@program
def _is_probability(x: Tensor) -> Tensor:
    return (x >= 0) & (x <= 1)


@maps("[0.0, 1.0, 0.0]", "3", "replacement=True", "[1, 1, 1]")
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Draw indices of the last axis, each as likely as its weight.

    Without replacement no index comes twice in a row. The weights need not sum to 1.

    Shapes: weights (n,) or (m, n) to (num_samples,) or (m, num_samples).
    dtype: int64.

    Args:
        input: the weights, floats that are finite and not negative.
        num_samples: how many indices for each row.
        replacement: whether an index may come again.

    Raises:
        OptionError: a weight is negative, infinite or NaN, or fewer are above 0 than samples are
            drawn.
        ShapeError: the weights are no vector or matrix of floats.
    """
    weights = _fixed(tensor_of(input, "multinomial"))
    count = integer(num_samples, "multinomial", "num_samples")
    _check_weights(weights, count, replacement)
    shape = weights._type.shape
    stream = generator or default_generator
    if not replacement:  # the smallest of waiting times
        waiting = _waiting(stream.draw(ops.random_uniform, shape, f64), weights)
        order = emit(ops.argsort, (waiting,), axis=len(shape) - 1, descending=False)
        return clone(ops.slice_axis(order, len(shape) - 1, 0, count))
    return _index_of(weights, stream.draw(ops.random_uniform, (*shape[:-1], count), f64))


@program
def _index_of(weights: Tensor, uniform: Tensor) -> Tensor:
    """The index of the weight in whose part of their sum a number of [0, 1) lies."""
    edges = cast(weights, f64).cumsum(-1)
    found = searchsorted(edges, uniform * edges[..., -1:], right=True)
    return found.clamp(max=weights._type.shape[-1] - 1)


def _check_weights(weights: Tensor, count: int, replacement: bool) -> None:
    if weights.ndim not in (1, 2) or not weights.dtype.is_floating_point:
        raise ShapeError("multinomial: weights must be floats, a vector or a matrix")
    if not count > 0 or (count > weights._type.shape[-1] and not replacement):
        raise OptionError(
            f"multinomial: cannot draw {count} of {weights._type.shape[-1]} without replacement, "
            "nor less than one"
        )
    unsound = "multinomial: probability tensor contains either `inf`, `nan` or element < 0"
    require(_are_finite(weights), unsound)
    few = "multinomial: invalid distribution: fewer weights above 0 than samples"
    require(_are_enough(weights, 1 if replacement else count), few)


@program
def _are_finite(weights: Tensor) -> Tensor:
    """Whether no weight is negative, infinite or NaN."""
    return ((weights >= 0) & (weights < math.inf)).all()


@program
def _are_enough(weights: Tensor, least: int) -> Tensor:
    """Whether so many of each row are above 0."""
    return ((weights > 0).sum(-1) >= least).all()


@program
def _waiting(uniform: Tensor, weights: Tensor) -> Tensor:
    """Exponential waiting times, each with its rate."""
    return -log1p(-uniform) / cast(weights, f64)


def _are(found: tuple[Any, Any], numbers: tuple[int, int]) -> bool:
    """Whether two arguments are these numbers; a live scalar is not looked at."""
    return all(type(value) in (int, float) for value in found) and found == numbers


def uniform_(
    input: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Overwrite the tensor with uniform numbers from [from_, to), and return it.

    Args:
        from_: the least number.
        to: the limit, which isn't drawn but for rounding.

    Raises:
        OptionError: `from_` is above `to`.
        DTypeError: the tensor holds no floats.

    >>> x = lucid.empty(100).uniform_(2.0, 3.0)
    >>> ((x >= 2) & (x <= 3)).all()
    tensor(True)
    """
    if _is_number(from_) and _is_number(to) and from_ > to:
        raise OptionError(f"uniform_: from={from_} must not be greater than to={to}")
    numbers = _fresh(ops.random_uniform, input, generator, "uniform_")
    return write_(input, numbers if _are((from_, to), (0, 1)) else numbers * (to - from_) + from_)


def normal_(
    input: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Overwrite the tensor with normal numbers, and return it.

    Args:
        mean: of the numbers.
        std: their standard deviation, not negative.

    Raises:
        OptionError: `std` is negative.
        DTypeError: the tensor holds no floats.

    >>> lucid.empty(3).normal_(5.0, 0.0)
    tensor([5., 5., 5.])
    """
    _check_std(std, "normal_")
    numbers = _fresh(ops.random_normal, input, generator, "normal_")
    return write_(input, numbers if _are((mean, std), (0, 1)) else numbers * std + mean)


def _fresh(op: Op, input: Tensor, generator: Generator | None, name: str) -> Tensor:
    if not input.dtype.is_floating_point:
        raise DTypeError(f"{name}: needs a floating-point tensor, not {input.dtype!r}")
    return (generator or default_generator).draw(op, input._type.shape, input.dtype)


def bernoulli_(
    input: Tensor, p: float | Tensor = 0.5, *, generator: Generator | None = None
) -> Tensor:
    """Overwrite the tensor with 1, with probability `p`, and else 0; return it.

    Args:
        input: a tensor of any dtype.
        p: the probability, a number or a tensor that broadcasts.

    Raises:
        OptionError: a probability isn't in [0, 1].

    >>> lucid.empty(3).bernoulli_(1.0)
    tensor([1., 1., 1.])
    """
    if isinstance(p, Tensor):
        p = broadcast(p, input._type.shape)
    return write_(input, cast(_chosen(input, p, generator), input.dtype))


def random_(
    input: Tensor,
    from_: int | None = None,
    to: int | None = None,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Overwrite the tensor with integers from [from_, to), or [0, from_) without `to`; return it.

    Without a range: from 0 to the greatest one up to which the dtype has all, at most 2**53.

    Args:
        input: a tensor of any dtype.
        from_: the least number; without `to` the limit.
        to: the limit, which isn't drawn.

    Raises:
        OptionError: the range is empty.

    >>> lucid.zeros(3).random_(4, 5)
    tensor([4., 4., 4.])
    """
    if from_ is None:
        from_ = _most_whole(input.dtype) if to is None else 0
    low, high = (0, from_) if to is None else (from_, to)
    numbers = randint(low, high, input._type.shape, generator=generator)
    return write_(input, cast(numbers, input.dtype))


def _most_whole(dtype: DType) -> int:
    """One above the greatest integer up to which the dtype, and float64, have all."""
    if dtype.kind == "float":
        return 1 << (int(np.finfo(dtype.numpy.str).nmant) + 1)
    most = 1 if dtype.kind == "bool" else limits_of(dtype)[1]
    return min(most + 1, 2**53)


def exponential_(
    input: Tensor, lambd: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Overwrite the tensor with numbers of density `lambd * exp(-lambd x)` for x > 0; return it.

    Args:
        lambd: the rate, above 0; the mean is its reciprocal.

    Raises:
        OptionError: the rate isn't above 0.
        DTypeError: the tensor holds no floats.

    >>> generator = lucid.manual_seed(0)
    >>> (lucid.empty(10000).exponential_(2.0).mean() - 0.5).abs() < 0.05
    tensor(True)
    """
    if _is_number(lambd) and not lambd > 0:
        raise OptionError(f"exponential_: expects lambda > 0.0, but found lambda={lambd}")
    uniform = _fresh(ops.random_uniform, input, generator, "exponential_")
    return write_(input, -log1p(-uniform) / lambd)


def log_normal_(input: Tensor, mean: float = 1, std: float = 2) -> Tensor:
    """Overwrite the tensor with exponentials of normal numbers, and return it.

    Mean and standard deviation are those of the logarithms.

    Args:
        mean: of the logarithms.
        std: their standard deviation.

    Raises:
        DTypeError: the tensor holds no floats.

    >>> lucid.empty(3).log_normal_(0.0, 0.0)
    tensor([1., 1., 1.])
    """
    return write_(input, (randn(input.shape, dtype=input.dtype) * std + mean).exp())


@like(log_normal_)
def cauchy_(input: Tensor, median: float = 0, sigma: float = 1) -> Tensor:
    """Overwrite the tensor with numbers from the Cauchy distribution, and return it.

    They have no mean: the median is at `median`, and half of them are within `sigma` of it.

    Args:
        median: the middle.
        sigma: half of the distance of the quartiles.

    >>> generator = lucid.manual_seed(0)
    >>> (lucid.empty(10000).cauchy_(3.0).median() - 3).abs() < 0.1
    tensor(True)
    """
    angle = (rand(input.shape, dtype=input.dtype) - 0.5) * math.pi
    return write_(input, angle.tan() * sigma + median)


@like(log_normal_)
def geometric_(input: Tensor, p: float) -> Tensor:
    """Overwrite the tensor with how many trials the first success takes, and return it.

    The numbers are 1, 2, …, of mean 1 / p.

    Args:
        p: the probability of success in a trial, between 0 and 1.

    >>> generator = lucid.manual_seed(0)
    >>> (lucid.empty(10000).geometric_(0.5).mean() - 2).abs() < 0.05
    tensor(True)
    """
    u = rand(input.shape, dtype=input.dtype).clamp(min=1e-7)
    return write_(input, (u.log() / math.log1p(-p)).ceil().clamp(min=1))


frames.edge_of_module(__name__)
