"""Optimizers and learning-rate schedules.

Args:
    params: parameters, or dicts of groups: "params" and hyper-parameters that differ.
    lr: the learning rate; a number, or a tensor of one element.
    eps: keeps the division finite.
"""

from lucid.functions.border import constructors_at_border
from lucid.ir import frames
from lucid.optim import lr_scheduler, swa_utils
from lucid.optim.adafactor import Adafactor
from lucid.optim.adagrad import Adadelta, Adagrad, RMSprop
from lucid.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam, SparseAdam
from lucid.optim.lbfgs import LBFGS
from lucid.optim.muon import Muon
from lucid.optim.optimizer import Optimizer
from lucid.optim.rprop import Rprop
from lucid.optim.sgd import ASGD, SGD

constructors_at_border(dict(vars()), "lucid.optim.")

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils",
]  # fmt: skip

frames.edge_of_module(__name__, "lr_scheduler", "swa_utils")
