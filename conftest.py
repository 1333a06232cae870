"""What examples in docstrings use without importing it."""

from __future__ import annotations

from typing import Any

import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn


@pytest.fixture(autouse=True, scope="session")
def names_of_examples(doctest_namespace: dict[str, Any]) -> None:
    """`import lucid`, `from lucid import nn` and `import lucid.nn.functional as F`."""
    doctest_namespace.update(lucid=lucid, nn=nn, F=F)
