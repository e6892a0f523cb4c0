"""A process remembers what it has read of immutable segments; a test that damages or removes them needs one
that does not."""

from __future__ import annotations

from strandline.catalog.chain_cache import ChainCache
from strandline.catalog.connection import Catalog
from strandline.runtime import Runtime
from strandline.storage.segment_cache import SegmentCache


def forget(*runtimes: Runtime) -> None:
    """What was read of segments' files is not known any more, as if the process had just started."""
    for runtime in runtimes:
        runtime.store.cache = SegmentCache(runtime.files)


def forget_rows(catalog: Catalog) -> None:
    """Nor are the rows of segments that were read from the catalog."""
    catalog._chains = ChainCache()
