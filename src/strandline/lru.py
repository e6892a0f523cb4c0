"""A small in-memory cache for immutable values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Cache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """A cache that evicts the least recently used entries when the sum of all costs exceeds ``limit``.

    Safe to use from any thread. Two threads may compute a missing value at the same time. This is harmless,
    because both compute the same value.
    """

    def __init__(self, limit: int, cost: Callable[[V], int]) -> None:
        self._limit = limit
        self._cost = cost
        self._total = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        known = self.find(key)
        if known is not None:
            return known
        value = make()
        self.put(key, value)
        return value

    def find(self, key: K) -> V | None:
        """Return the cached value, or None."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: K, value: V) -> None:
        cost = self._cost(value)
        with self._lock:
            if key not in self._entries and cost <= self._limit:
                self._entries[key] = (value, cost)
                self._total += cost
                while self._total > self._limit:
                    self._total -= self._entries.popitem(last=False)[1][1]

    def replace(self, key: K, value: V) -> None:
        """Cache a value instead of the one that is cached for the key, if any."""
        with self._lock:
            self._total -= self._entries.pop(key, (None, 0))[1]
        self.put(key, value)
