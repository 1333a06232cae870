"""PyTorch's switches of backends, so that programs that set them run: none of them exists."""

from __future__ import annotations


class Backend:
    """A backend that isn't there; its switches can be set and mean nothing."""

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
    """`backends.cuda`, with the switches of its matrix products."""

    matmul = Backend()


cuda = Cuda()
cudnn = Backend()
mps = Backend()
