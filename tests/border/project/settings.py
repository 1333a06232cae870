"""What is set for a whole run."""

SCALE = 1.0
OPTIONS = {"power": 1.0}


def __getattr__(name: str) -> float:
    """Names that were moved: what stands for them."""
    if name == "OLD_SCALE":
        return SCALE
    raise AttributeError(name)
