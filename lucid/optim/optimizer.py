"""The base of all optimizers: parameter groups, state, and what a compiled step needs of them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from lucid.compiler.guards.events import unheard
from lucid.compiler.recording import hooks
from lucid.functions.arguments import kind_of
from lucid.ir import memory
from lucid.ir.errors import ArgumentError, LucidError, MissingRuleError, OptionError, ShapeError
from lucid.ir.types import f32
from lucid.ir.whose_code import is_librarys
from lucid.nn.gradients import reset_gradients
from lucid.nn.naming import trace_name, variable_name
from lucid.optim.groups import Layout, ParamGroup, State, StateEntry, note_change
from lucid.optim.hooked import NATIVE, Hooked, hooked_step
from lucid.optim.hyper_parameters import FLAGS, Check, check_implementation
from lucid.optim.native import NativeStep
from lucid.tensor.arrays import copied_array, plain_array
from lucid.tensor.context import within
from lucid.tensor.core import TensorCore, of_array
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_

Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
Closure = Callable[[], Any]
Maker = Callable[[Tensor], Tensor]


_ALIKE = 0.85  # from here on two names are one and a slip of it, by difflib's ratio


class _RequiredParameter:
    """The default of a hyper-parameter that each group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


class Optimizer(Hooked):
    """Holds groups of parameters and updates them by their gradients; subclasses say how.

    A subclass with a `step` of its own may make its state at the first update, as PyTorch's do, and
    bind it anew at each.

    Attributes:
        param_groups: one dict per group: "params" and the hyper-parameters. A compiled step reads
            their floats at each call; everything else in them it is specialized on.
        state: per parameter, a dict of tensors; made when the parameter is first updated.
        defaults: the hyper-parameters of groups that don't say otherwise.

    Args:
        defaults: the hyper-parameters of groups that don't say otherwise.

    Raises:
        ArgumentError: `params` is a tensor, a module, or another thing that isn't iterated over.
        OptionError: it is empty.

    >>> class Signs(lucid.optim.Optimizer):
    ...     def __init__(self, params, lr=0.1):
    ...         super().__init__(params, {"lr": lr})
    ...
    ...     def step(self, closure=None):
    ...         with lucid.no_grad():
    ...             for group in self.param_groups:
    ...                 for p in group["params"]:
    ...                     p -= group["lr"] * p.grad.sign()
    >>> w = lucid.tensor([1.0, -3.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Signs([w]).step()
    >>> w.detach()
    tensor([ 0.9000, -2.9000])
    """

    _ranges: ClassVar[Mapping[str, Check]] = {}
    _has_stepped = False  # what a scheduler asks
    _sums = False  # whether an update sums over elements, so that native code rounds differently
    _state: ClassVar[Mapping[str, Maker]] = {}  # what makes the tensors of a parameter's state

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        super().__init__()
        self.defaults = defaults
        self._check_values(defaults)
        self.state = State()
        self.param_groups: list[ParamGroup] = []
        if isinstance(params, Tensor) or not isinstance(params, Iterable):
            raise ArgumentError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {type(params).__name__}"
                + (
                    "\nhint: pass .parameters(), with its parentheses"
                    if callable(params) or hasattr(params, "parameters")
                    else ""
                )
            )
        given: list[Any] = list(params)
        if not given:
            raise OptionError(
                f"{type(self).__name__}: optimizer got an empty parameter list\n"
                "hint: modules in a Python list aren't registered: nn.ModuleList; an iterator of "
                "parameters() that was used up gives none"
            )
        groups = given if isinstance(given[0], dict) else [{"params": given}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group: "params" and hyper-parameters; the others are the defaults.

        Raises for a parameter that is no leaf, or that another group has.

        Args:
            param_group: a dict with "params", and what differs from the defaults.

        Raises:
            ArgumentError: it is no dict, a parameter no tensor, or a name nearly that of a
                hyper-parameter; other names are the program's own.
            OptionError: a parameter is no leaf, or another group has it; some groups have names
                and some don't; an implementation that there isn't; a hyper-parameter is missing
                whose default is `required`.

        >>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], lr=0.1)
        >>> opt.add_param_group({"params": [lucid.ones(2, requires_grad=True)], "lr": 0.5})
        >>> [group["lr"] for group in opt.param_groups]
        [0.1, 0.5]
        """
        if not isinstance(param_group, dict):
            raise ArgumentError(f"param_group must be a dict, but got {type(param_group).__name__}")
        if any(group.is_input() for group in self.param_groups):
            hooks.run_op_by_op("it gives an optimizer one more group, by add_param_group()")
        values = dict(param_group)
        _spread(values)
        for parameter in values["params"]:
            _check_parameter(parameter)
        flags = {key for key in FLAGS if key in values and key not in self.defaults}
        check_implementation(type(self).__name__, **{key: values[key] for key in flags})
        for key in values.keys() - self.defaults.keys() - flags:
            if meant := difflib.get_close_matches(key, self.defaults, 1, _ALIKE):
                raise ArgumentError(
                    f"{type(self).__name__}: a group has no {key!r}\nhint: did you mean {meant[0]}?"
                )
        for name, default in self.defaults.items():
            if default is required and name not in values:
                raise OptionError(
                    f"{type(self).__name__}: a parameter group didn't specify {name!r}"
                )
        values = {**self.defaults, **values}
        self._check_values(values)
        known = {id(p) for group in self.param_groups for p in group.raw("params")}
        if any(id(parameter) in known for parameter in values["params"]):
            raise OptionError("some parameters appear in more than one parameter group")
        if len({id(parameter) for parameter in values["params"]}) < len(values["params"]):
            raise OptionError("some parameters appear more than once in one parameter group")
        if len({"param_names" in group for group in (*self.param_groups, values)}) == 2:
            raise OptionError("all parameter groups should be with names, or all without")
        self.param_groups.append(ParamGroup(values, self, len(self.param_groups)))
        note_change()

    def _check_values(self, values: dict[str, Any]) -> None:
        """Raise for hyper-parameters that make no sense; the others become what groups hold."""
        for key, check in self._ranges.items():
            if key in values:
                try:
                    values[key] = check(values[key])
                except (TypeError, ValueError, LookupError) as error:
                    if isinstance(error, LucidError):
                        raise
                    text = f"{type(self).__name__}: {key} can't be {values[key]!r}: {error}"
                    raise ArgumentError(text) from None

    def trace_name(self) -> str:
        """What the running trace calls this optimizer: the variable that holds it."""
        return trace_name(self, lambda: variable_name(self))

    def _is_known_unused(self) -> bool:
        """Whether no step has been taken; False for a subclass with a `step` of its own."""
        return type(self).step is Optimizer.step and not self._has_stepped

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "state":
            value = State.of(value, vars(self).get(name))
        elif name == "param_groups":
            self._take(value)
        super().__setattr__(name, value)

    def _take(self, groups: list[Any]) -> None:
        """Let groups be this optimizer's, where a user has put dicts in their place."""
        for position, group in enumerate(groups):
            if not isinstance(group, ParamGroup):
                hooks.run_op_by_op("a dict has taken the place of a group of its optimizer")
                values: dict[str, Any] = {**self.defaults, **group}
                self._check_values(values)
                groups[position] = ParamGroup(values, self, position)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros, which have no history.

        Args:
            set_to_none: forget them; else fill them with zeros.

        >>> w = lucid.ones(1, requires_grad=True)
        >>> opt = lucid.optim.SGD([w], lr=0.1)
        >>> (w * 2).sum().backward()
        >>> opt.zero_grad()
        >>> print(w.grad)
        None
        """
        parameters = [p for group in self.param_groups for p in group["params"]]
        reset_gradients(parameters, set_to_none)

    @hooked_step
    def step(self, closure: Closure | None = None) -> Any:
        """Update every parameter that has a gradient.

        The gradients stay; `zero_grad` forgets them before the next backward.

        Args:
            closure: recomputes the loss and the gradients; called first, its result is returned.

        Raises:
            ArgumentError: a closure that can't be called, or none where it is needed.

        >>> w = lucid.ones(1, requires_grad=True)
        >>> opt = lucid.optim.SGD([w], lr=0.1)
        >>> (w * 2).sum().backward()
        >>> opt.step()
        >>> w.detach()
        tensor([0.8000])
        """
        loss = None
        if closure is not None:
            if not callable(closure):
                raise ArgumentError(
                    f"{type(self).__name__}.step: closure must be a function, not "
                    f"{type(closure).__name__}"
                )
            loss = within({"grad_enabled": True}, closure)
        if not self._has_stepped:
            self._has_stepped = True
        self._take(self.param_groups)
        within({"grad_enabled": False}, self._update_all)
        return loss

    def _update_all(self) -> None:
        """The updates of all groups: in a trace ops, else a compiled step of their own."""
        if hooks.is_tracing():
            with hooks.scope(f"{self.trace_name()}.step"):
                self._step_groups()
            return
        native = vars(self).get(NATIVE)
        if native is None:
            native = vars(self)[NATIVE] = NativeStep(self, sums=self._sums)
        native()

    def _step_groups(self, gradients: Sequence[Tensor | None] | None = None) -> None:
        """Update all parameters that have a gradient.

        gradients: one per parameter, in the order of the groups; default: their `.grad`.
        """
        of_all = [(group, p) for group in self.param_groups for p in group["params"]]
        if gradients is None:
            gradients = [parameter.grad for _, parameter in of_all]
        updates = [
            (group, parameter, gradient)
            for (group, parameter), gradient in zip(of_all, gradients, strict=True)
            if gradient is not None
        ]
        for group, parameter, _ in updates:
            self._prepare(group, parameter)
        if hooks.is_tracing():
            self._guard_tensors()
            if is_librarys(type(self)):
                self._record_updates(updates)
                return
        for update in updates:
            self._update_by(*update)

    @unheard
    def _record_updates(self, updates: Sequence[tuple[ParamGroup, Tensor, Tensor]]) -> None:
        repeat = hooks.repetition()
        for update in updates:
            group, parameter, gradient = update
            entry = {
                k: x for k, x in self.state.get(parameter, {}).items() if isinstance(x, Tensor)
            }
            tensors = parameter, gradient, *entry.values()
            repeat((group.position, *entry), tensors, partial(self._update_by, *update))

    def _update_by(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        step = self.state.get(parameter, {}).get("step")
        if isinstance(step, Tensor):
            write_(step, step + 1)
        self._update(group, parameter, -gradient if group.get("maximize") else gradient)

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        """Update one parameter; its state is there, and its "step" counts this one."""
        raise MissingRuleError(f"{type(self).__name__} must define step()")

    def _state_makers(self, group: ParamGroup, parameter: Tensor) -> dict[str, Maker]:
        """What makes each tensor of state that the parameter's updates need."""
        return dict(self._state)

    def _prepare(self, group: ParamGroup, parameter: Tensor) -> None:
        """Create what is missing of a parameter's state, on concrete tensors also in a trace."""
        needed = self._state_makers(group, parameter)
        if not needed:
            return
        entry = self.state[parameter]
        for key in needed:
            if key not in entry:
                entry.create(key, needed[key](parameter))

    def _state_like(
        self, other: Optimizer, is_written: Callable[[Tensor], bool]
    ) -> list[Callable[[], object]]:
        """Make the state that the first step would, where another one has it; what takes it back.

        So a compiled step goes on with this one, which begins where the other has begun.

        is_written: whether the step writes a tensor of the other one.
        """
        undo: list[Callable[[], object]] = []
        if self._has_stepped or type(self).step is not Optimizer.step or self.state:
            return undo
        for group, like in zip(self.param_groups, other.param_groups, strict=False):
            for parameter, p in zip(group.raw("params"), like.raw("params"), strict=False):
                known: Any = dict.get(other.state, p, {})
                makers = self._state_makers(group, parameter)
                if not is_written(p) or known.keys() != makers.keys():
                    continue
                if not self._has_stepped:
                    self._has_stepped = True
                    undo.append(partial(vars(self).pop, "_has_stepped", None))
                if makers and all(map(is_written, known.values())):
                    entry = StateEntry()
                    dict.update(entry, {key: make(parameter) for key, make in makers.items()})
                    dict.__setitem__(self.state, parameter, entry)
                    undo.append(partial(dict.pop, self.state, parameter, None))
        if undo:
            note_change()
            undo.append(note_change)
        return undo

    def guard(self) -> None:
        """Make the running trace depend on all of the groups but their floats."""
        recorder = hooks.running.recorder
        assert recorder is not None
        source = f"{self.trace_name()}.param_groups"
        hooks.watch_entries(vars(self), "param_groups", source, self)
        for i, group in enumerate(self.param_groups):
            hooks.watch_entries(group, "params", f"{source}[{i}]['params']")
        if source not in recorder.guards:  # a layout is made anew after each new tensor of state
            self.state.layout = None  # a list of parameters may have been changed
            layout = self.layout()
            recorder.guard_value(
                source, lambda: self.layout().settings, layout.settings, gated=True
            )
            recorder.guard_value(
                f"parameters of {self.trace_name()}",
                lambda: self.layout().parameters,
                layout.parameters,
                gated=True,
            )
        if type(self).step is not Optimizer.step:  # which guards the state once it is made
            hooks.meet(self, self.trace_name())

    def _guard_tensors(self) -> None:
        """Make the running trace depend on which parameters and state tensors there are."""
        recorder, name = hooks.running.recorder, self.trace_name()
        assert recorder is not None
        if hooks.is_made_here(self.state.trace):
            return
        for group in self.param_groups:
            for n, parameter in enumerate(group.raw("params")):
                path = hooks.watch_tensor(parameter, f"{group.source}['params'][{n}]")
                for key, value in self.state.get(parameter, {}).items():
                    if isinstance(value, TensorCore):
                        hooks.watch_tensor(value, f"{name}.state[{path}][{key!r}]")
        recorder.guard_value(
            f"parameters and state of {name}",
            lambda: self.layout().tensors,
            self.layout().tensors,
            gated=True,
        )

    def layout(self) -> Layout:
        """What a compiled step is specialized on; computed anew after changes of optimizers."""
        state, now = self.state, (State.changes, self._hook_numbers())
        if state.layout is None or state.layout[0] != now:
            state.layout = now, Layout(self.param_groups, state, now[1])
        return state.layout[1]

    def state_dict(self) -> dict[str, Any]:
        """State by number of the parameter, and groups with numbers in place of parameters.

        Aliasing: the tensors share the optimizer's memory.

        >>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], lr=0.1)
        >>> sorted(opt.state_dict())
        ['param_groups', 'state']
        """
        self._run_hooks("_state_dict_pre_hooks")
        numbers: dict[int, int] = {}
        groups = []
        if hooks.is_tracing() and not hooks.is_made_here(self.state.trace):
            for i, entry in enumerate([self.state, *self.state.values()]):
                hooks.meet(entry, f"{self.trace_name()}.state" + f"[{i - 1}]" * bool(i))
        for group in self.param_groups:
            for parameter in group["params"]:
                numbers.setdefault(id(parameter), len(numbers))
            packed = {key: group[key] for key in group if key != "params"}
            packed["params"] = [numbers[id(parameter)] for parameter in group["params"]]
            groups.append(packed)
        state = {numbers[id(p)]: dict(entry) for p, entry in self.state.items() if entry}
        return self._changed_by_hooks(
            "_state_dict_post_hooks", {"state": state, "param_groups": groups}
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over hyper-parameters and state; tensors are copied, in place where there are some.

        An error leaves all as it was.

        Args:
            state_dict: as `state_dict` makes it.

        Raises:
            ArgumentError: it isn't a state dict, or something in it is of another kind.
            OptionError: the groups differ in number or size, or a hyper-parameter makes no sense.
            ShapeError: a tensor of the state has another shape than its parameter has it.

        >>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], lr=0.1)
        >>> state = opt.state_dict()
        >>> state["param_groups"][0]["lr"] = 0.5
        >>> opt.load_state_dict(state)
        >>> opt.param_groups[0]["lr"]
        0.5
        """
        if not {"param_groups", "state"} <= set(getattr(state_dict, "keys", list)()):
            raise ArgumentError(
                "load_state_dict: a dict with 'param_groups' and 'state' is needed, not "
                f"{type(state_dict).__name__}\nhint: state_dict() of an optimizer makes one"
            )
        state_dict = self._changed_by_hooks("_load_pre_hooks", dict(state_dict))
        saved = state_dict["param_groups"]
        is_of_dicts = isinstance(saved, (list, tuple)) and all(isinstance(x, dict) for x in saved)
        if not is_of_dicts or not all("params" in group for group in saved):
            raise ArgumentError("load_state_dict: 'param_groups' must list dicts with 'params'")
        if not isinstance(state_dict["state"], dict):
            raise ArgumentError("load_state_dict: 'state' must be a dict of what parameters have")
        if len(saved) != len(self.param_groups):
            groups = f"{len(saved)} groups, the optimizer {len(self.param_groups)}"
            raise OptionError(f"load_state_dict: the saved state has {groups}")
        settings, states = [*map(self._settings_in, saved)], state_dict["state"]
        loaded: dict[Tensor, dict[str, Any]] = {}
        for group, values, found in zip(self.param_groups, saved, settings, strict=True):
            if len(group["params"]) != len(values["params"]):
                raise OptionError("load_state_dict: a group has another number of parameters")
            kept = {key: group.raw(key) for key in dict.keys(group)}
            after = ParamGroup(kept | found, self, group.position)
            for number, parameter in zip(values["params"], group["params"], strict=True):
                makers, state = self._state_makers(after, parameter), states.get(number, {})
                loaded[parameter] = self._state_in(number, state, parameter, makers)
        for group, values in zip(self.param_groups, settings, strict=True):
            group.update(values)
        for parameter, values in loaded.items():
            entry = self.state[parameter]
            for key in [key for key in entry if key not in values]:
                del entry[key]
            for key, value in values.items():
                _load(entry, key, value, parameter)
        if type(self).__setstate__ is not Optimizer.__setstate__:  # the user's, who adds options
            self.__setstate__({"state": self.state, "param_groups": self.param_groups})
        self._run_hooks("_load_post_hooks")

    def _settings_in(self, saved: dict[str, Any]) -> dict[str, Any]:
        """The hyper-parameters of a saved group. Raises for those that make no sense."""
        found = {key: value for key, value in saved.items() if key != "params"}
        rate, checked = found.get("lr"), dict(found)
        if type(rate) is float and rate < 0:
            del checked["lr"]  # a schedule may leave one that is a hair below 0
        self._check_values(checked)
        return found | checked

    def _state_in(
        self, number: int, saved: Any, parameter: Tensor, makers: Mapping[str, Maker]
    ) -> dict[str, Any]:
        """The saved state of a parameter, its arrays as tensors; a count may be a plain number.

        Raises `ArgumentError` for what can't be that, `ShapeError` for what has another shape than
        the one that is made.
        A tensor that is None isn't there yet.
        """
        if not isinstance(saved, dict):
            kind = kind_of(saved)
            raise ArgumentError(
                f"load_state_dict: the state of {number} must be a dict, not {kind}"
            )
        found: dict[str, Any] = {}
        for key, value in saved.items():
            if isinstance(value, np.ndarray):
                array = plain_array(value, f"load_state_dict: {key!r}")
                found[key] = of_array(copied_array(array, None, "load_state_dict"))
            elif isinstance(value, Tensor) or key not in makers:
                found[key] = value
            elif type(value) in (int, float) and makers[key] is not zeros_like:
                found[key] = of_array(np.array(value, f32.numpy))
            elif value is not None:
                kind = kind_of(value)
                raise ArgumentError(
                    f"load_state_dict: {key!r} of {number} must be a tensor, not {kind}"
                )
            if key in makers and key in found:
                shape, due = [*found[key].shape], [*makers[key](parameter).shape]
                if shape != due and (due or found[key].numel() != 1):
                    what = f"{key!r} of {number} has shape {shape}, and {due} is due"
                    raise ShapeError(f"load_state_dict: {what}")
        return found

    def __repr__(self) -> str:
        lines = []
        for position, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {position}")
            names = sorted(key for key in group if key != "params")
            lines.extend(f"    {key}: {group[key]}" for key in names)
        return f"{type(self).__name__} (\n" + "\n".join(lines) + "\n)"


def _spread(values: dict[str, Any]) -> None:
    """Make a list of a group's "params", and names of its pairs (name, parameter)."""
    if "params" not in values:
        raise OptionError("a parameter group needs the key 'params'")
    params = values["params"]
    if isinstance(params, (set, frozenset)):
        raise ArgumentError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of "
            "tensors in sets will change between runs. Please use a list instead."
        )
    params = [params] if isinstance(params, Tensor) else list(params)
    if params and all(isinstance(item, tuple) and len(item) == 2 for item in params):
        values["param_names"] = [name for name, _ in params]
        params = [parameter for _, parameter in params]
    values["params"] = params


def _check_parameter(parameter: object) -> None:
    if not isinstance(parameter, Tensor):
        raise ArgumentError(f"can only optimize Tensors, not {kind_of(parameter)}")
    if not (parameter.is_leaf or parameter.retains_grad):
        raise OptionError(
            f"can't optimize a non-leaf Tensor\n  {parameter._describe()}\n"
            "hint: pass the leaf that it was computed from"
        )


def _load(entry: StateEntry, key: str, value: Any, parameter: Tensor) -> None:
    """Take over one value of the state; moments get the parameter's dtype."""
    present = entry.get(key)
    if not isinstance(value, Tensor):
        entry[key] = value
        return
    value = value.detach()
    if isinstance(present, Tensor) and present.shape == value.shape:
        within({"grad_enabled": False}, write_, present, value.to(present.dtype))
        return
    both = value.dtype.is_floating_point and parameter.dtype.is_floating_point
    entry[key] = value.to(parameter.dtype if both and key != "step" else value.dtype, copy=True)


def zeros_like(parameter: Tensor) -> Tensor:
    """Concrete zeros of a parameter's type, also inside a trace: the start of a moment."""
    return of_array(memory.full(tuple(parameter.shape), 0, parameter.dtype.numpy))


def step_count(parameter: Tensor) -> Tensor:
    """A concrete 0-d count of the updates, 0; f32 as in PyTorch's state dicts."""
    return of_array(np.zeros((), f32.numpy))


def ones(parameter: Tensor) -> Tensor:
    """A concrete 0-d 1, f32: the start of a product of the updates."""
    return of_array(np.ones((), f32.numpy))


def decayed(
    group: ParamGroup, parameter: Tensor, gradient: Tensor, decoupled: bool = False
) -> tuple[Tensor, Tensor]:
    """Parameter and gradient after the weight decay, which goes into one of them."""
    if not group.is_nonzero("weight_decay"):
        return parameter, gradient
    if decoupled:
        return parameter * (1 - group["lr"] * group["weight_decay"]), gradient
    return parameter, gradient + parameter * group["weight_decay"]
