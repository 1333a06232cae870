"""Sizes that a program leaves open: integers known by formulas, such as 64 * n.

A graph whose batch size is an `Extent` goes through passes and planning as any other one: an extent
computes like an int, and where code asks how large it is, it answers by the size at hand and notes
the answer as an *assumption*. What comes out is right for every size for which the assumptions
hold. Sizes of 0 and 1 are never open, since broadcasting and emptiness change what a graph means.

A formula is a polynomial over atoms: the symbols, and quotients that don't come out even.
Reference: the SymInt of PyTorch's ShapeEnv and the symbolic dimensions of JAX's shape polymorphism
are the same idea; here C code can't read an extent unnoticed, since it is no `int`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, chain, product
from math import prod
from operator import index, is_
from typing import Any, NoReturn

LEAST, MOST = 2, 2**24
"""The sizes that a symbol stands for."""

Monomial = tuple[int, ...]
Polynomial = tuple[tuple[Monomial, int], ...]


class NotOpenError(Exception):
    """Code needs to know a size, or found it equal to another one by chance: it can't be open.

    Args:
        of: what can't; none: it isn't known which.

    Attributes:
        symbols: the numbers of theirs.
    """

    def __init__(self, text: str, of: Iterable[Extent] = ()) -> None:
        super().__init__(text)
        self.symbols = {n for extent in of for n in extent.sizes.symbols_in(extent.key)}


@dataclasses.dataclass(frozen=True, slots=True)
class _Quotient:
    """An atom that is `over // under`."""

    over: Polynomial
    under: Polynomial


class Sizes:
    """The symbols of a program, and what was assumed about them.

    Args:
        hints: the sizes at hand, one for each symbol.
        is_strict: equal formulas are equal sizes, and others aren't: `NotOpenError` where the
            sizes at hand are equal by chance. Otherwise that is one more assumption.
        bits: the symbols that are no sizes but the bits of other numbers.
        most: the largest size that a symbol stands for.
        room: for how many symbols there is room, of which `add` makes more.
        is_generic: sizes of different formulas count as different, and nothing is noted. So it is
            where axes are told apart, and what is made for two is right for equal ones.

    Attributes:
        needed: the symbols of sizes for which code has asked, and was refused.
        origins: what each symbol is the size of, as who adds it notes.
        known: values of the symbols that answer all questions, with nothing noted; None: those at
            hand do, and what they answer is assumed.
        has_text: whether extents may be printed, as n0, n1 …
        slots: the formulas whose values code reads while it runs.
    """

    def __init__(
        self,
        hints: Sequence[int],
        *,
        is_strict: bool = True,
        bits: Collection[int] = (),
        most: int = MOST,
        room: int = 0,
        is_generic: bool = False,
    ) -> None:
        self.is_strict, self.has_text, self.most = is_strict, True, most
        self.is_generic = is_generic
        self.needed: set[int] = set()
        self.origins: list[set[Any]] = []
        self.known: Sequence[int] | None = None
        self.slots: dict[Polynomial, int] = {}
        self.counted = [number for number in range(len(hints)) if number not in bits]
        self.count = max(len(hints), room)
        self.hints = [*hints, *[LEAST] * (self.count - len(hints))]
        self.symbols: list[Any] = [Extent(self, (((i,), 1),), n) for i, n in enumerate(hints)]
        self._quotients: list[_Quotient] = []
        self._numbers: dict[_Quotient, int] = {}
        unknown = -(2**64), 2**64
        self._ranges = [
            unknown if number in bits else (LEAST, most) for number in range(self.count)
        ]
        self.assumptions: dict[tuple[Polynomial, str], None] = {}

    def add(self, hint: int) -> Extent:
        """One more symbol, of this size now. Raises `NotOpenError` where there is no room."""
        number = len(self.symbols)
        if number == self.count:
            raise NotOpenError("there are too many sizes")
        self.hints[number] = hint
        self.counted.append(number)
        self.symbols.append(Extent(self, (((number,), 1),), hint))
        self.origins.append(set())
        found: Extent = self.symbols[number]
        return found

    def make(self, terms: Mapping[Monomial, int], hint: int) -> Any:
        """The extent of a formula; an int where no symbol is in it."""
        kept = {monomial: factor for monomial, factor in terms.items() if factor}
        if not kept:
            return 0
        if len(kept) == 1 and () in kept:
            return kept[()]
        return Extent(self, tuple(sorted(kept.items())), hint)

    def quotient(self, over: Polynomial, under: Polynomial, hint: int) -> Any:
        """floor(over / under): a formula where it comes out even, an atom where it doesn't."""
        over, under = _reduced(over, under)
        even = _divided(over, under)
        if even is not None:
            return self.make(even, hint)
        if over == () or (len(over) == len(under) == 1 and over[0][0] == under[0][0] == ()):
            return hint
        key = _Quotient(over, under)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self.count + len(self._quotients)
            self._quotients.append(key)
            self._ranges.append(self._range_of(over, under))
            self.hints.append(hint)
        return Extent(self, (((number,), 1),), hint)

    # Questions ----------------------------------------------------------------------------

    def is_negative(self, difference: Any) -> bool:
        """Whether a formula is less than 0: known, or by the sizes at hand."""
        if not isinstance(difference, Extent):
            return bool(difference < 0)
        if self.known is not None:
            return self.at(self.known)(difference) < 0
        key = difference.key
        low, high = self._bounds(key)
        if low >= 0 or high < 0:
            return low < 0
        found = difference.hint < 0
        self.assumptions[key, "<" if found else ">="] = None
        return found

    def is_zero(self, difference: Any) -> bool:
        """Whether a formula is 0."""
        if not isinstance(difference, Extent):
            return bool(difference == 0)
        if self.known is not None:
            return self.at(self.known)(difference) == 0
        key = difference.key
        low, high = self._bounds(key)
        if low > 0 or high < 0:
            return False
        if self.is_generic and difference.hint:
            return False
        found = difference.hint == 0
        if found and self.is_strict and all(a < self.count for m, _ in key for a in m):
            raise NotOpenError("two sizes are equal by chance")
        self.assumptions[key, "==" if found else "!="] = None
        return found

    def _bounds(self, key: Polynomial) -> tuple[int, int]:
        """Between which values a formula is, by those that symbols may have."""
        low = high = 0
        for monomial, factor in key:
            ends = [factor]
            for atom in monomial:
                ends = [x * y for x in (min(ends), max(ends)) for y in self._ranges[atom]]
            low += min(ends)
            high += max(ends)
        return low, high

    def _range_of(self, over: Polynomial, under: Polynomial) -> tuple[int, int]:
        """Between which values a quotient is."""
        ends, (least, most) = self._bounds(over), self._bounds(under)
        if least <= 0:
            far = max(map(abs, ends))
            return -far, far
        quotients = [x // y for x in ends for y in (least, most)]
        return min(quotients), max(quotients)

    # Other sizes --------------------------------------------------------------------------

    def symbols_in(self, key: Polynomial) -> set[int]:
        """The numbers of the symbols that a formula is made of."""
        found: set[int] = set()
        for monomial, _ in key:
            for atom in monomial:
                if atom < self.count:
                    found.add(atom)
                else:
                    quotient = self._quotients[atom - self.count]
                    found |= self.symbols_in(quotient.over) | self.symbols_in(quotient.under)
        return found

    def origins_of(self, symbols: Collection[int]) -> set[Any]:
        """What symbols are the sizes of; all of them where none are given."""
        numbers = symbols or range(len(self.origins))
        return {origin for number in numbers for origin in self.origins[number]}

    def equal_symbols(self) -> list[int]:
        """For each symbol the first one that is assumed to be equal to it, perhaps itself."""
        found = list(range(len(self.symbols)))
        for key, relation in self.assumptions:
            if relation == "==" and [len(monomial) for monomial, _ in key] == [1, 1]:
                ((a,), x), ((b,), y) = key
                if x == -y and max(a, b) < len(found):
                    first, last = sorted((found[a], found[b]))
                    found = [first if n == last else n for n in found]
        return found

    def renamed(self, symbols: Sequence[Any]) -> Callable[[Extent], Any]:
        """A function that gives an extent's formula of other symbols, or of ints."""
        atoms = list(symbols)

        def value(key: Polynomial) -> Any:
            total: Any = 0
            for monomial, factor in key:
                total = total + prod([atoms[atom] for atom in monomial], start=factor)
            return total

        def of(extent: Extent) -> Any:
            atoms.extend([None] * (self.count - len(atoms)))
            for quotient in self._quotients[len(atoms) - self.count :]:
                atoms.append(value(quotient.over) // value(quotient.under))
            return value(extent.key)

        return of

    def assume_as(self, other: Sizes, symbols: Sequence[Any]) -> None:
        """Assume what another one does, of these symbols, for whose hints it holds."""
        rename = other.renamed(symbols)
        for key, relation in other.assumptions:
            difference = rename(Extent(other, key, 0))
            if is_open(difference):
                self.assumptions[difference.key, relation] = None

    def at(self, values: Sequence[int]) -> Callable[[Extent], int]:
        """A function that gives an extent's value where the symbols have these."""
        atoms = [*values, *[LEAST] * (self.count - len(values))]

        def value(key: Polynomial) -> int:
            return sum(factor * prod(atoms[atom] for atom in m) for m, factor in key)

        def of(extent: Extent) -> int:
            for quotient in self._quotients[len(atoms) - self.count :]:
                atoms.append(value(quotient.over) // value(quotient.under))
            return value(extent.key)

        return of

    def slot(self, extent: Extent) -> int:
        """The place of a formula's value among those that code reads while it runs."""
        return self.slots.setdefault(extent.key, len(self.slots))

    def evaluator(self, wanted: Iterable[Any]) -> Callable[[Sequence[int]], Sequence[int]]:
        """A function of the symbols' values that gives those of formulas (and ints)."""
        wanted = [*wanted]
        keys = [x.key for x in wanted if is_open(x)]
        return self._function(f"[{', '.join(map(self._source, wanted))}]", keys)

    def shapes(self, wanted: Sequence[Sequence[Any]]) -> Callable[[Sequence[int]], Sequence[Any]]:
        """A function of the symbols' values that gives those of shapes."""
        sizes_of = self.evaluator(chain.from_iterable(wanted))
        ends = [*accumulate(map(len, wanted))]
        parts = [slice(end - len(x), end) for x, end in zip(wanted, ends, strict=True)]

        def shapes(values: Sequence[int]) -> Sequence[Any]:
            sizes = sizes_of(values)
            return [sizes[part] for part in parts]

        return shapes

    def in_slots(self) -> Callable[[Sequence[int]], Sequence[int]]:
        """A function of the symbols' values that gives those of all slots."""
        return self._function(f"[{', '.join(map(self._text, self.slots))}]", self.slots)

    def tests(self) -> list[tuple[Any, str]]:
        """What `checker` looks at, but for the range of each size: formulas compared with 0."""
        keys = [*self.assumptions, *((x.under, "!=") for x in self._quotients)]
        return [(Extent(self, key, 0), relation) for key, relation in keys]

    def checker(self) -> Callable[[Sequence[int]], bool]:
        """A function of the symbols' values: whether all that was assumed holds for them."""
        return self.checker_of(self.assumptions)

    def checker_of(
        self,
        assumptions: Iterable[tuple[Polynomial, str]],
        known: Collection[int] | None = None,
    ) -> Callable[[Sequence[int]], bool]:
        """The same for some of what was assumed.

        known: the symbols that it is about, where others have no values yet.
        """
        assumed = [*assumptions]
        counted = [n for n in self.counted if known is None or n in known]
        tests = [f"{LEAST} <= v[{number}] <= {self.most}" for number in counted]
        tests += [f"{self._text(key)} {relation} 0" for key, relation in assumed]
        keys = [key for key, _ in assumed]
        for x in self._quotients:
            if known is None or self.symbols_in((*x.over, *x.under)).issubset(known):
                tests.append(f"{self._text(x.under)} != 0")
                keys.append(x.under)
        return self._function(" and ".join(tests) or "True", keys)

    def _function(self, source: str, keys: Iterable[Polynomial]) -> Callable[[Sequence[int]], Any]:
        """A function of the symbols' values that gives that of a text.

        keys: the formulas in it, whose quotients are computed first.
        """
        lines = []
        for atom in sorted(self._atoms_in(keys)):
            x = self._quotients[atom - self.count]  # whose divisor `checker` looks at
            lines.append(f" q{atom} = {self._text(x.over)} // ({self._text(x.under)} or 1)")
        names: dict[str, Any] = {}
        exec("\n".join(["def found(v):", *lines, f" return {source}"]), names)
        made: Callable[[Sequence[int]], Any] = names["found"]
        return made

    def _source(self, x: Any) -> str:
        return self._text(x.key) if isinstance(x, Extent) else repr(int(x))

    def _atoms_in(self, keys: Iterable[Polynomial]) -> set[int]:
        """The quotients that formulas are made of, and those that these are made of."""
        found: set[int] = set()
        pending = [*keys]
        while pending:
            atoms = {atom for monomial, _ in pending.pop() for atom in monomial}
            for atom in atoms - found:
                if atom >= self.count:
                    quotient = self._quotients[atom - self.count]
                    pending += quotient.over, quotient.under
                    found.add(atom)
        return found

    def _text(self, key: Polynomial) -> str:
        def name(atom: int) -> str:
            return f"v[{atom}]" if atom < self.count else f"q{atom}"

        parts = ["*".join([str(factor), *map(name, m)]) for m, factor in key]
        return "(" + " + ".join(parts) + ")" if parts else "0"


class Extent:
    """A size that is open; see the module. It computes as an int, with ints and its like.

    Attributes:
        sizes: whose symbols it is made of.
        key: the formula; equal for equal ones.
        hint: its value for the sizes at hand.
    """

    __slots__ = ("hint", "key", "sizes")

    def __init__(self, sizes: Sizes, key: Polynomial, hint: int) -> None:
        self.sizes, self.key, self.hint = sizes, key, hint

    # Arithmetic ---------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        known = self._known(other)
        if known is None:
            return NotImplemented
        terms = dict(self.key)
        for monomial, factor in known[0]:
            terms[monomial] = terms.get(monomial, 0) + factor
        return self.sizes.make(terms, self.hint + known[1])

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Any:
        return self

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if self._known(other) is None else self + other * -1

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        known = self._known(other)
        if known is None:
            return NotImplemented
        terms: dict[Monomial, int] = {}
        for (a, x), (b, y) in product(self.key, known[0]):
            monomial = tuple(sorted(a + b))
            terms[monomial] = terms.get(monomial, 0) + x * y
        return self.sizes.make(terms, self.hint * known[1])

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        known = self._known(other)
        if known is None:
            return NotImplemented
        if not isinstance(other, Extent) and other == 1:
            return self
        return self.sizes.quotient(self.key, known[0], self.hint // known[1])

    def __rfloordiv__(self, other: Any) -> Any:
        known = self._known(other)
        if known is None:
            return NotImplemented
        return self.sizes.quotient(known[0], self.key, known[1] // self.hint)

    def __mod__(self, other: Any) -> Any:
        return NotImplemented if self._known(other) is None else self - self // other * other

    def __rmod__(self, other: Any) -> Any:
        return NotImplemented if self._known(other) is None else other - other // self * self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    # Questions ----------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if other.__class__ is Extent:
            if other.sizes is not self.sizes:
                return False
            if other.key == self.key:
                return True
        elif not isinstance(other, int):
            return NotImplemented
        return self.sizes.is_zero(self - other)

    def __hash__(self) -> int:
        return hash((id(self.sizes), self.key))  # what outlives a program may know its types

    def __lt__(self, other: Any) -> bool:
        is_known = self._known(other) is not None
        return self.sizes.is_negative(self - other) if is_known else NotImplemented

    def __ge__(self, other: Any) -> bool:
        is_known = self._known(other) is not None
        return not self.sizes.is_negative(self - other) if is_known else NotImplemented

    def __gt__(self, other: Any) -> bool:
        is_known = self._known(other) is not None
        return self.sizes.is_negative(other - self) if is_known else NotImplemented

    def __le__(self, other: Any) -> bool:
        is_known = self._known(other) is not None
        return not self.sizes.is_negative(other - self) if is_known else NotImplemented

    def __bool__(self) -> bool:
        return not self.sizes.is_zero(self)

    def _needed(self, *_: object) -> NoReturn:
        error = NotOpenError(f"a size is needed, which is {self.hint} now", [self])
        self.sizes.needed |= error.symbols
        raise error

    def __index__(self) -> int:
        return self._needed() if self.sizes.known is None else self.sizes.at(self.sizes.known)(self)

    __int__ = __trunc__ = __index__
    __float__ = __round__ = _needed
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _needed
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _needed
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __invert__ = _needed
    bit_length = is_integer = _needed

    def _known(self, x: Any) -> tuple[Polynomial, int] | None:
        """The formula and the value of an int or an extent."""
        if x.__class__ is Extent:
            return x.key, x.hint
        if isinstance(x, int):
            return ((((), int(x)),) if x else ()), int(x)
        if isinstance(x, float):
            self._needed()
        return None

    def __repr__(self) -> str:
        if not self.sizes.has_text:
            return repr(index(self))
        text = " + ".join(
            "*".join([*(str(x) for x in (factor,) if x != 1 or not m), *(f"n{a}" for a in m)])
            for m, factor in self.key
        )
        return f"({text})" if len(self.key) > 1 else text


def _reduced(over: Polynomial, under: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Both without the symbols that all their terms have in common."""
    shared = list(over[0][0]) if over else []
    for monomial, _ in (*over, *under):
        shared = [a for n, a in enumerate(shared) if shared[: n + 1].count(a) <= monomial.count(a)]
    if not shared:
        return over, under
    divisor = ((tuple(shared), 1),)
    a, b = (tuple(sorted((_divided(x, divisor) or {}).items())) for x in (over, under))
    return a, b


def _divided(over: Polynomial, under: Polynomial) -> dict[Monomial, int] | None:
    """A polynomial divided by one term, where nothing is left."""
    if len(under) != 1:
        return {(): 1} if over == under else None
    (divisor, factor) = under[0]
    found: dict[Monomial, int] = {}
    for monomial, coefficient in over:
        rest = list(monomial)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if coefficient % factor:
            return None
        found[tuple(rest)] = coefficient // factor
    return found


def hint(x: Any) -> Any:
    """The value at hand of an extent, for choices that don't change what code means."""
    return x.hint if x.__class__ is Extent else x


def taken(start: int, stop: int, step: int) -> int:
    """How many indices a slice takes: len(range(start, stop, step))."""
    gap = stop - start if step > 0 else start - stop
    return -(-gap // abs(step)) if gap > 0 else 0


def indices_of(item: slice, size: int) -> tuple[int, int, int]:
    """`item.indices(size)`, where sizes may be open. Raises what that raises."""
    if not any(map(is_open, (size, item.start, item.stop, item.step))):
        return item.indices(size)
    step = slice(None, None, item.step).indices(1)[2]
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def bound(given: Any, default: int) -> Any:
        if given is None:
            return default
        place = given if is_open(given) else index(given)
        place = place + size if place < 0 else place
        return low if place < low else high if place > high else place

    first, last = (low, high) if step > 0 else (high, low)
    return bound(item.start, first), bound(item.stop, last), step


def divides(a: int, b: int) -> bool:
    """Whether a size is a multiple of another, or is for all that open ones may be."""
    rest: Any = b % a
    return not (is_open(rest) and rest.sizes.is_generic) and not rest


def ceil_div(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)


def is_multiple(x: Any, of: int) -> bool:
    """Whether a number is a multiple of another one: of an extent, for all sizes."""
    rest = x % of
    return rest.__class__ is not Extent and rest == 0


def is_open(x: object) -> bool:
    """Whether it is an extent."""
    return x.__class__ is Extent


def symbol_of(x: object) -> int | None:
    """The number of the symbol that a size is; None: it is an int, or another formula."""
    if x.__class__ is Extent and len(x.key) == 1:
        ((monomial, factor),) = x.key
        if factor == len(monomial) == 1 and monomial[0] < x.sizes.count:
            return monomial[0]
    return None


def settled(x: Any) -> Any:
    """A copy of plain data with ints where sizes are known by now."""

    def of(extent: Extent) -> Any:
        known = extent.sizes.known
        return extent if known is None else extent.sizes.at(known)(extent)

    return replaced(x, of)


def replaced(x: Any, replace: Callable[[Extent], Any]) -> Any:
    """A copy of plain data – dataclasses, tuples, lists, dicts – with other extents.

    What has none in it is shared with the original.
    """
    kind: Any = x.__class__
    if kind is Extent:
        return replace(x)
    if kind in _WITHOUT:
        return x
    if kind is list or isinstance(x, tuple):
        made = [entry if entry.__class__ in _WITHOUT else replaced(entry, replace) for entry in x]
        if all(map(is_, made, x)):
            return x
        return kind(*made) if hasattr(kind, "_fields") else kind(made)
    if kind is dict:
        entries = {key: replaced(value, replace) for key, value in x.items()}
        return x if all(map(is_, entries.values(), x.values())) else entries
    if not hasattr(kind, "__dataclass_fields__"):
        return x
    changed, names = {}, _fields_of(kind)
    for name in names:
        old = getattr(x, name)
        new = replaced(old, replace)
        if new is not old:
            changed[name] = new
    if not changed:
        return x
    made_ = object.__new__(kind)
    for name in names:
        object.__setattr__(made_, name, changed.get(name, getattr(x, name)))
    return made_


_WITHOUT = frozenset((int, str, bool, float, type(None), type))  # extents are in none of these


@cache
def _fields_of(kind: Any) -> tuple[str, ...]:
    """The names of a dataclass's fields."""
    return tuple([field.name for field in dataclasses.fields(kind)])
