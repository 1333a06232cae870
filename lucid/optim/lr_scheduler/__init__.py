"""Learning-rate schedules; inside a compiled step their `step()` takes effect after each call.

Args:
    optimizer: whose groups' rate is set.
    last_epoch: the epoch to go on after; -1 begins.
    gamma: the factor.
"""

from lucid.functions.border import constructors_at_border
from lucid.ir import frames
from lucid.optim.lr_scheduler.base import LRScheduler
from lucid.optim.lr_scheduler.composed import ChainedScheduler, SequentialLR
from lucid.optim.lr_scheduler.cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from lucid.optim.lr_scheduler.decay import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from lucid.optim.lr_scheduler.plateau import ReduceLROnPlateau

_LRScheduler = LRScheduler  # the name that older programs import

constructors_at_border(dict(vars()), "lucid.optim.")

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip

frames.edge_of_module(__name__)
