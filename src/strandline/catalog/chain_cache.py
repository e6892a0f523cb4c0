"""Cache of chains in a process: segments, which never change, and the present states of tables."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

from strandline.lru import Cache
from strandline.model import Segment

SEGMENT_BYTES = 64 << 20
"""Maximum size of the cached segments in bytes. Most of it is rows that are stored inline."""
CHAINED = 200_000
"""Maximum number of segments in all cached chains."""


@dataclass(frozen=True)
class KnownChain:
    """The segments of a table's state at ``step``, in order; ``last_id`` is the largest id among them."""

    step: int
    segments: tuple[Segment, ...]
    last_id: int

    def plus(self, added: tuple[Segment, ...], step: int) -> KnownChain:
        """Return the state at a later step, with these segments added at the end."""
        if not added:
            return replace(self, step=step)
        last_id = max(self.last_id, *(s.id for s in added))
        return KnownChain(step, (*self.segments, *added), last_id)


class ChainCache:
    """Segments by id, and the last known state of tables. Safe to use from any thread."""

    def __init__(self) -> None:
        self.segments: Cache[int, Segment] = Cache(SEGMENT_BYTES, lambda s: len(s.data or b"") + 1300)
        self._chains: OrderedDict[int, KnownChain] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def find(self, table_id: int) -> KnownChain | None:
        with self._lock:
            if table_id in self._chains:
                self._chains.move_to_end(table_id)
            return self._chains.get(table_id)

    def put(self, table_id: int, chain: KnownChain) -> None:
        """Cache the chain if no later state is cached."""
        with self._lock:
            known = self._chains.get(table_id)
            if known is not None and known.step >= chain.step:
                return
            self._total += len(chain.segments) - (0 if known is None else len(known.segments))
            self._chains[table_id] = chain
            self._chains.move_to_end(table_id)
            while self._total > CHAINED:
                self._total -= len(self._chains.popitem(last=False)[1].segments)
