"""A process remembers what it has read of immutable segments; a test that damages them needs one that does
not."""

from __future__ import annotations

from typing import Any

from strandline.catalog.connection import Catalog
from strandline.lru import Cache
from strandline.storage import segment


def forget(*catalogs: Catalog) -> None:
    """What was read of segments' files, and of their rows in these catalogs, is not known any more, as if the
    process had just started."""
    caches: list[Cache[Any, Any]] = [segment._footers, segment._small, *(c._segments for c in catalogs)]
    for cache in caches:
        with cache._lock:
            cache._entries.clear()
            cache._total = 0
