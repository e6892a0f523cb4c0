"""Python's collector of cycles, kept off for a while.

It looks at every object that has lived for some time again and again. While a plan for ten thousand tables is
made this takes a third of the time, and finds nothing: plans and rows hold no cycles."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]

_lock = threading.Lock()
_inside = 0
_was_on = False


@contextmanager
def uncollected() -> Iterator[None]:
    """A time in which cycles are not looked for; afterwards they are again, if they were before. May be used
    by several threads at once: the last one to leave switches it on."""
    global _inside, _was_on
    with _lock:
        if _inside == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _was_on:
                gc.enable()
