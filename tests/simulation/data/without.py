"""Each safeguard, taken out again: a simulation that still finds nothing could not have seen what the safeguard is for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

SAFEGUARDS: dict[str, Callable[[], AbstractContextManager[None]]] = {}


@contextlib.contextmanager
def taken_out(name: str | None) -> Iterator[None]:
    """Without one of the safeguards, or with all of them (None), while the block lasts."""
    with SAFEGUARDS[name]() if name is not None else contextlib.nullcontext():
        yield
