"""Pauses Python's garbage collector of reference cycles.

The collector examines long-lived objects repeatedly. While a large plan is built, this takes much of the time
and finds nothing, because plans and rows contain no cycles.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["pause_gc"]

_lock = threading.Lock()
_inside = 0
_was_on = False


@contextmanager
def pause_gc() -> Iterator[None]:
    """Pause the cycle collector during the block.

    Several threads may do this at once. When the last of them leaves its block, the collector is switched on
    again if it was on before.
    """
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
