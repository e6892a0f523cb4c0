"""Plans queries and statements from the cache, and makes sure that the versions in a plan fit each other.

The invariant: a table's description lists each index with the version that the index's implementation table
has. Caches may be stale for a moment, so a mismatch is no error yet: the entries are dropped and loaded
again, a few times with a pause; only then does the request fail, with both versions in the error. A plan that
fits may still be an old one: a commit proves what it was planned with, and is refused as a whole if the
catalog has moved on (``stale.Stale``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from strandline.catalog.cache import Look, SchemeCache, Unit
from strandline.catalog.tables import TableInfo
from strandline.clock import Clock
from strandline.errors import SchemaMismatch
from strandline.metrics import Metrics, event
from strandline.retry import tries

T = TypeVar("T")


@dataclass(frozen=True)
class TablePlan:
    """A table as a planner may use it: ``impls`` are the implementation tables of ``table.indexes``, in the
    same order, at the very versions that the table lists."""

    table: TableInfo
    impls: tuple[TableInfo, ...]


class _Mismatch(Exception):
    """The versions in a plan do not fit each other."""

    def __init__(self, unit: Unit, path: str, expected: int, actual: int | None) -> None:
        super().__init__(path)
        self.unit = unit
        self.path = path
        self.expected = expected
        self.actual = actual


class Loader:
    """Shared by all threads of a process."""

    def __init__(
        self,
        cache: SchemeCache,
        clock: Clock,
        *,
        retries: int = 3,
        retry_seconds: float = 0.1,
        metrics: Metrics | None = None,
    ) -> None:
        self.cache = cache
        self._clock = clock
        self._retries = retries
        self._retry_seconds = retry_seconds
        self._metrics = metrics or Metrics()

    def read(self, use: Callable[[Look], T]) -> T:
        """What ``use`` makes of one snapshot of the catalog, in which it may plan any tables. If a plan does
        not fit, it is called again with another snapshot."""
        wrong: _Mismatch | None = None
        for _ in tries(self._clock, lambda _: self._retry_seconds, count=self._retries + 1):
            try:
                with self.cache.looking() as look:
                    made = use(look)
            except _Mismatch as seen:
                wrong = seen
                self._saw(seen)
                continue
            if wrong is not None:
                self._metrics.mismatches.labels("cured").inc()
            return made
        assert wrong is not None  # There was a first try, and it did not return.
        self._metrics.mismatches.labels("failed").inc()
        raise SchemaMismatch(
            f"schema version mismatch for {wrong.path}: {wrong.unit.table.path} expects version "
            f"{wrong.expected}, "
            f"{'but it is not there' if wrong.actual is None else f'got {wrong.actual}'}"
        )

    def planned(self, look: Look, path: str) -> TablePlan:
        """The table at a path, for ``read``."""
        unit = self.cache.unit(look, path)
        impls: list[TableInfo] = []
        for ref, impl in zip(unit.table.indexes, unit.impls, strict=True):
            if impl is None:
                raise _Mismatch(unit, f"{unit.table.path}/{ref.definition.name}", ref.version, None)
            if impl.version != ref.version:
                raise _Mismatch(unit, impl.path, ref.version, impl.version)
            impls.append(impl)
        return TablePlan(unit.table, tuple(impls))

    def _saw(self, wrong: _Mismatch) -> None:
        self._metrics.mismatches.labels("seen").inc()
        table = wrong.unit.table.path
        event("mismatch", table=table, path=wrong.path, expected=wrong.expected, actual=wrong.actual)
        self.cache.forget(wrong.unit)
