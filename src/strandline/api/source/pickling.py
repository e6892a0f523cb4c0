"""Pickle the source for processes in which the package cannot be imported yet."""

from __future__ import annotations

import builtins
import zipimport
from collections.abc import Callable
from types import FunctionType
from typing import Any

import strandline.errors as somewhere

__all__ = ["archive", "travelling"]


def archive() -> str | None:
    """Return the zip archive from which the package was imported. None: it was imported from a folder."""
    loader = somewhere.__loader__
    return loader.archive if isinstance(loader, zipimport.zipimporter) else None


def travelling(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a function that is pickled by value. It can use only names that it imports itself."""
    assert isinstance(function, FunctionType)
    made = FunctionType(function.__code__, {"__builtins__": builtins}, function.__name__)
    made.__module__ = "__main__"
    return made
