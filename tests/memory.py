"""A process remembers what it has read of immutable files; a test that damages them needs one that does
not."""

from __future__ import annotations

from strandline.storage import segment


def forget() -> None:
    """What was read of segments is not known any more, as if the process had just started."""
    for cache in (segment._footers, segment._small):
        with cache._lock:
            cache._entries.clear()
            cache._total = 0
