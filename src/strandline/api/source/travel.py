"""How the source comes into a process in which Spark has not made the package known."""

from __future__ import annotations

import builtins
import zipimport
from collections.abc import Callable
from types import FunctionType
from typing import Any

import strandline.errors as somewhere

__all__ = ["archive", "travelling"]


def archive() -> str | None:
    """Return the archive that this process has the package from; None if it is in a folder."""
    loader = somewhere.__loader__
    return loader.archive if isinstance(loader, zipimport.zipimporter) else None


def travelling(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is pickled whole, and not as the name of one that could be imported. It has
    nothing but what it imports itself."""
    assert isinstance(function, FunctionType)
    made = FunctionType(function.__code__, {"__builtins__": builtins}, function.__name__)
    made.__module__ = "__main__"
    return made
