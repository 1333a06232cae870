"""RMSprop."""

from __future__ import annotations

from lucid.docstrings import like
from lucid.optim.adam import Adam
from lucid.optim.groups import ParamGroup
from lucid.optim.hyper_parameters import COMMON, hyper_parameters, nonnegative
from lucid.optim.optimizer import Maker, Optimizer, Params, decayed, step_count, zeros_like
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_


@like(Adam)
class RMSprop(Optimizer):
    """param -= lr * g / (sqrt(v) + eps), with the running mean v of the gradient's square.

    Reference: Tieleman and Hinton, "Lecture 6.5", 2012; for the centered form Graves, "Generating
    Sequences With Recurrent Neural Networks", 2013.

    Args:
        alpha: how much of v stays at each step. Default: 0.99.
        momentum: the quotient is summed with this decay. Default: 0.0.
        centered: v less the square of the gradient's running mean. Default: False.
    """

    _ranges = COMMON | {"alpha": nonnegative("alpha value")}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, hyper_parameters(locals()))

    def _state_makers(self, group: ParamGroup, parameter: Tensor) -> dict[str, Maker]:
        names = ["square_avg"] + ["momentum_buffer"] * group.is_nonzero("momentum")
        names += ["grad_avg"] * group["centered"]
        return {"step": step_count, **dict.fromkeys(names, zeros_like)}

    def _update(self, group: ParamGroup, parameter: Tensor, gradient: Tensor) -> None:
        state, alpha = self.state[parameter], group["alpha"]
        _, gradient = decayed(group, parameter, gradient)
        square = state["square_avg"]
        write_(square, square * alpha + gradient * (1 - alpha) * gradient)
        variance = square
        if group["centered"]:
            mean = state["grad_avg"]
            write_(mean, mean + (gradient - mean) * (1 - alpha))
            variance = square - mean * mean
        size = variance.sqrt() + group["eps"]
        if group.is_nonzero("momentum"):
            total = state["momentum_buffer"]
            write_(total, total * group["momentum"] + gradient / size)
            write_(parameter, parameter - total * group["lr"])
        else:
            write_(parameter, parameter - gradient * group["lr"] / size)
