"""Plans queries and statements from the cache, and makes sure that the versions in a plan fit each other.

The invariant: a table's description lists each index with the version that the index's implementation table
has. Caches may be stale for a moment, so a mismatch is no error yet: the entries are dropped and loaded
again, a few times with a pause; only then does the request fail, with both versions in the error. A plan that
fits may still be an old one: a commit proves what it was planned with, and is refused as a whole if the
catalog has moved on (``stale.Stale``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline import names
from strandline.catalog.cache import SchemeCache, Unit
from strandline.catalog.tables import TableInfo
from strandline.clock import Clock
from strandline.errors import SchemaMismatch
from strandline.metrics import Metrics, event


@dataclass(frozen=True)
class TablePlan:
    """A table as a planner may use it: ``impls`` are the implementation tables of ``table.indexes``, in the
    same order, at the very versions that the table lists."""

    table: TableInfo
    impls: tuple[TableInfo, ...]


@dataclass(frozen=True)
class _Mismatch:
    path: str
    expected: int
    actual: int | None


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

    def plan(self, paths: Sequence[str]) -> list[TablePlan]:
        """The tables at ``paths``."""
        return [self._plan(names.normalize(path)) for path in paths]

    def _plan(self, path: str) -> TablePlan:
        unit = self.cache.unit(path)
        wrong = _mismatch(unit)
        for _ in range(self._retries):
            if wrong is None:
                break
            self._saw(unit, wrong)
            self._clock.sleep(self._retry_seconds)
            unit = self.cache.unit(path)
            wrong = _mismatch(unit)
            if wrong is None:
                self._metrics.mismatches.labels("cured").inc()
        if wrong is not None:
            self._saw(unit, wrong)
            self._metrics.mismatches.labels("failed").inc()
            raise SchemaMismatch(
                f"schema version mismatch for {wrong.path}: {unit.table.path} expects version "
                f"{wrong.expected}, "
                f"{'but it is not there' if wrong.actual is None else f'got {wrong.actual}'}"
            )
        return TablePlan(unit.table, tuple(impl for impl in unit.impls if impl is not None))

    def _saw(self, unit: Unit, wrong: _Mismatch) -> None:
        self._metrics.mismatches.labels("seen").inc()
        event(
            "mismatch", table=unit.table.path, path=wrong.path, expected=wrong.expected, actual=wrong.actual
        )
        self.cache.forget(unit)


def _mismatch(unit: Unit) -> _Mismatch | None:
    for ref, impl in zip(unit.table.indexes, unit.impls, strict=True):
        if impl is None:
            return _Mismatch(f"{unit.table.path}/{ref.definition.name}", ref.version, None)
        if impl.version != ref.version:
            return _Mismatch(impl.path, ref.version, impl.version)
    return None
