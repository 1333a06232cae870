"""`isinstance` by an object's class alone, for objects of the user's.

Python's own asks an object of another class for its `__class__` as well, which runs the user's
code: a `__getattribute__` that counts what is read would count the compiler's looks. Where Python's
own is meant as an object, it is `builtins.isinstance`.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from builtins import isinstance as isinstance
else:

    def isinstance(value: Any, kinds: Any) -> bool:
        """Whether an object's class is one of these or below one.

        What stands for a number or a text in a trace says itself what it stands for.
        """
        kind = type(value)
        if issubclass(kind, kinds):
            return True
        module = kind.__module__  # which a class may compute for its objects
        is_librarys = type(module) is str and module.startswith("lucid.")
        return is_librarys and builtins.isinstance(value, kinds)
