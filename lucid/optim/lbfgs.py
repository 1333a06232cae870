"""L-BFGS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, SupportsFloat

import lucid
from lucid.compiler.compiled import Compiled
from lucid.compiler.recording import hooks
from lucid.functions.arguments import kind_of
from lucid.ir.errors import ArgumentError, EagerOnlyError, OptionError
from lucid.optim.hooked import NATIVE
from lucid.optim.hyper_parameters import COMMON, hyper_parameters, nonnegative, only
from lucid.optim.line_search import Point, strong_wolfe
from lucid.optim.optimizer import Closure, Maker, Optimizer, Params
from lucid.tensor.context import context, within
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_

_LEAST_CURVATURE = 1e-10


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last `history_size` changes of the gradient; one group only.

    `step` takes a closure that computes the loss and the gradients, and calls it many times. In a
    compiled step the search runs op by op, and the closure as a compiled step of its own.

    Reference: Liu and Nocedal, "On the Limited Memory BFGS Method", 1989.

    Args:
        max_iter: the most iterations of a step.
        max_eval: the most calls of the closure. None is max_iter * 5 / 4.
        tolerance_grad: stop at a gradient below this.
        tolerance_change: stop at a change below this.
        history_size: how many changes of the gradient are kept.
        line_search_fn: None for steps of length `lr`, or "strong_wolfe".

    Raises:
        OptionError: more than one group, or another line search.

    >>> w = lucid.tensor([3.0], requires_grad=True)
    >>> opt = lucid.optim.LBFGS([w])
    >>> def closure():
    ...     opt.zero_grad()
    ...     loss = ((w - 1) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = opt.step(closure)
    >>> abs(w.item() - 1) < 1e-3
    True
    """

    _ranges = COMMON | {
        "line_search_fn": only(
            lambda name: name in (None, "strong_wolfe"),
            "LBFGS: only 'strong_wolfe' is supported, not {!r}",
        ),
        **{name: nonnegative(name) for name in ("max_iter", "max_eval", "history_size")},
        **dict.fromkeys(
            ("tolerance_grad", "tolerance_change"),
            only(lambda value: isinstance(value, SupportsFloat), "LBFGS: {!r} is no tolerance"),
        ),
    }

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        super().__init__(params, hyper_parameters(locals()))
        if len(self.param_groups) != 1:
            raise OptionError(
                "LBFGS doesn't support per-parameter options (parameter groups)\n"
                "hint: pass one list of parameters"
            )

    def _state_in(
        self, number: int, saved: Any, parameter: Tensor, makers: Mapping[str, Maker]
    ) -> dict[str, Any]:
        found = super()._state_in(number, saved, parameter, makers)
        size = sum(each.numel() for each in self.param_groups[0]["params"])
        lengths = {len(found[key]) for key in _LISTS if isinstance(found.get(key), list)}
        for key in _STATE if found.get("n_iter") else found.keys() & _STATE:
            value = found.get(key)
            is_list = isinstance(value, list) and len(lengths) == 1
            parts: Any = value if is_list and key in _LISTS else [None if key in _LISTS else value]
            if not all(_STATE[key](part, size) for part in parts):
                raise ArgumentError(
                    f"load_state_dict: {key!r} of {number}, {kind_of(value)}, isn't what a search "
                    f"over {size} elements leaves"
                )
        return found

    def step(self, closure: Closure | None = None) -> Any:
        """Iterate until a tolerance or a limit is reached; return the closure's first result."""
        if closure is None:
            raise ArgumentError("LBFGS.step: needs a closure that computes the loss")
        if hooks.is_tracing():
            raise EagerOnlyError("LBFGS decides by the values of losses and gradients")
        if context.op_by_op:  # in a compiled step, of which the closure can be native
            if NATIVE not in vars(self):
                vars(self)[NATIVE] = Compiled(_lbfgs_closure)
            closure = partial(vars(self)[NATIVE], closure)
        result = within({"grad_enabled": True}, closure)
        within({"grad_enabled": False}, lambda: _Search(self, closure).run(float(result)))
        return result


def _is_number(value: Any, size: int) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, Tensor) and value.numel() == 1)


def _is_vector(value: Any, size: int) -> bool:
    return isinstance(value, Tensor) and tuple(value.shape) == (size,)


# What a search that has begun leaves of its optimizer's state.
_STATE: dict[str, Callable[[Any, int], bool]] = {
    **dict.fromkeys(("func_evals", "n_iter", "t", "H_diag", "ro"), _is_number),
    **dict.fromkeys(("d", "prev_flat_grad", "old_dirs", "old_stps"), _is_vector),
}
_LISTS = ("ro", "old_dirs", "old_stps")  # of what was kept of as many iterations


def _lbfgs_closure(closure: Closure) -> Any:
    return closure()


class _Search:
    """One call of `LBFGS.step`: what it knows of the loss, and the state it leaves behind."""

    def __init__(self, optimizer: LBFGS, closure: Closure) -> None:
        self.group = optimizer.param_groups[0]
        self.params: list[Tensor] = self.group["params"]
        self.closure = closure
        self.state = optimizer.state[self.params[0]]
        for key in ("func_evals", "n_iter"):
            self.state.setdefault(key, 0)
        self.evaluations = 1

    def run(self, loss: float) -> None:
        state, group = self.state, self.group
        state["func_evals"] += 1
        gradient = self._gradient()
        if self._is_flat(gradient):
            return
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = self._direction(gradient)
            state["prev_flat_grad"], state["prev_loss"] = gradient.clone(), loss
            slope = float(gradient.dot(direction))
            rate = float(group["lr"])
            if state["n_iter"] == 1:
                rate *= min(1.0, 1.0 / float(gradient.abs().sum()))
            state["d"], state["t"] = direction, rate
            if slope > -group["tolerance_change"]:
                return
            before, is_last = loss, iteration == group["max_iter"]
            start = Point(0.0, loss, gradient, slope)
            loss, gradient = self._move(start, direction, rate, is_last)
            if is_last or self.evaluations >= group["max_eval"] or self._is_flat(gradient):
                return
            if float((direction * state["t"]).abs().max()) <= group["tolerance_change"]:
                return
            if abs(loss - before) < group["tolerance_change"]:
                return

    def _move(
        self, start: Point, direction: Tensor, rate: float, is_last: bool
    ) -> tuple[float, Tensor]:
        """Take a step along the direction; return loss and gradient where it ends."""
        if self.group["line_search_fn"] is None:
            self._add(direction, rate)
            if is_last:
                return start.loss, start.gradient
            return self._evaluate()
        origin = [parameter.clone() for parameter in self.params]

        def probe(t: float) -> Point:
            self._add(direction, t)
            loss, gradient = self._evaluate()
            for parameter, value in zip(self.params, origin, strict=True):
                write_(parameter, value)
            return Point(t, loss, gradient, float(gradient.dot(direction)))

        longest = float(direction.abs().max())
        limit = self.group["max_eval"] - self.evaluations
        found = strong_wolfe(probe, start, rate, longest, limit)
        self._add(direction, found.t)
        self.state["t"] = found.t
        return found.loss, found.gradient

    def _direction(self, gradient: Tensor) -> Tensor:
        """The quasi-Newton direction, after the newest change was taken into the history."""
        state = self.state
        if state["n_iter"] == 1:
            state.update({"old_dirs": [], "old_stps": [], "ro": [], "H_diag": 1.0})
            return -gradient
        self._remember(gradient - state["prev_flat_grad"], state["d"] * state["t"])
        pairs = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
        rest: Tensor = -gradient
        parts: list[Tensor] = []
        for change, step, inverse in reversed(pairs):
            parts.append(step.dot(rest) * inverse)
            rest = rest - change * parts[-1]
        direction: Tensor = rest * state["H_diag"]
        for (change, step, inverse), part in zip(pairs, reversed(parts), strict=True):
            direction = direction + step * (part - change.dot(direction) * inverse)
        return direction

    def _remember(self, change: Tensor, step: Tensor) -> None:
        state, curvature = self.state, change.dot(step)
        if not float(curvature) > _LEAST_CURVATURE:
            return
        entries = (("old_dirs", change), ("old_stps", step), ("ro", 1.0 / curvature))
        for key, value in entries:
            state[key] = [*state[key], value][-self.group["history_size"] :]
        state["H_diag"] = curvature / change.dot(change)

    def _evaluate(self) -> tuple[float, Tensor]:
        loss = float(within({"grad_enabled": True}, self.closure))
        self.evaluations += 1
        self.state["func_evals"] += 1
        return loss, self._gradient()

    def _gradient(self) -> Tensor:
        parts = [
            lucid.zeros_like(p) if p.grad is None else p.grad.detach().clone() for p in self.params
        ]
        return lucid.cat([part.reshape(-1) for part in parts])

    def _add(self, direction: Tensor, t: float) -> None:
        offset = 0
        for parameter in self.params:
            part = direction[offset : offset + parameter.numel()]
            write_(parameter, parameter + part.reshape(parameter.shape) * t)
            offset += parameter.numel()

    def _is_flat(self, gradient: Tensor) -> bool:
        return float(gradient.abs().max()) <= float(self.group["tolerance_grad"])
