"""PyTorch's switches of backends, so that programs that set them run: none of them exists."""

from __future__ import annotations

import sys


class Backend:
    """A backend that isn't there; its switches can be set and mean nothing.

    >>> backend = lucid.backends.Backend()
    >>> backend.benchmark = True
    >>> backend.is_available()
    False
    """

    deterministic = True
    benchmark = False
    enabled = False
    allow_tf32 = False

    def is_available(self) -> bool:
        """Return False."""
        return False

    def is_built(self) -> bool:
        """Return False."""
        return False


class Cuda(Backend):
    """`backends.cuda`, with the switches of its matrix products, which mean nothing either.

    >>> backend = lucid.backends.Cuda()
    >>> backend.matmul.allow_tf32 = True
    >>> backend.is_built()
    False
    """

    matmul = Backend()


cuda = Cuda()
cudnn = Backend()
mps = Backend()
for _name in ("cuda", "cudnn", "mps"):  # programs import them as modules
    sys.modules[f"{__name__}.{_name}"] = vars()[_name]
