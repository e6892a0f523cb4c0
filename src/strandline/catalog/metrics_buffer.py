"""Buffer of metrics and notices that this process has not written to the catalog yet.

Counting an event does not write to the catalog, so that reading a table never writes. The session's thread
writes new entries from time to time, and closing the connection writes the rest. A process that is killed
loses the entries since the last write.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, fields
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, update

from strandline.catalog import sqltables
from strandline.catalog.transactions import Writer

_MOST = 10_000
"""Maximum number of buffered notices. Beyond it, the oldest ones are dropped."""
_AT = sqltables.counts.c
_GROW = (
    update(sqltables.counts)
    .where(_AT.name == bindparam("of"), _AT.labels == bindparam("with"))
    .values(value=_AT.value + bindparam("more"))
)


class Count(NamedTuple):
    """The key of a counter: its name, and its labels as JSON text."""

    name: str
    labels: str

    @staticmethod
    def of(name: str, labels: Mapping[str, str]) -> Count:
        return Count(name, json.dumps(dict(sorted(labels.items()))))


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A report of a process about versions.

    The values of ``event``:

    - ``mismatch``: the versions in a plan of the table ``path_id`` did not fit each other. The table expects
      version ``expected`` of the path ``other``, which has version ``actual``.
    - ``cured`` or ``failed``: retries after a mismatch succeeded or failed.
    - ``conflict``: the claim of a part was refused, because the operation ``other`` has claimed the path.
    - ``arrived``: a generation reached the cache ``seconds`` after its commit.
    """

    event: str
    time: float
    path_id: int | None = None
    other: str | None = None
    operation_id: str | None = None
    part_id: int | None = None
    expected: int | None = None
    actual: int | None = None
    generation: int | None = None
    seconds: float | None = None


_COLUMNS = (*(field.name for field in fields(Notice)), "session_id")


class News(NamedTuple):
    """Entries that one transaction writes: notices, and the increase of each counter."""

    notices: list[Notice]
    counts: dict[Count, float]


class Ledger:
    """The buffer of one process and one catalog. Safe to use from any thread.

    Attributes:
        counted: a function that returns the values of all counters of this process.
    """

    def __init__(self) -> None:
        self.counted: Callable[[], dict[Count, float]] = dict
        self._notices: deque[Notice] = deque(maxlen=_MOST)
        self._told: dict[Count, float] = {}
        self.lock = threading.RLock()
        """Held while new counts are committed, and while unwritten counts are added to the written ones."""

    def note(self, notice: Notice) -> None:
        self._notices.append(notice)

    def news(self) -> News:
        """Return the notices and counts that are not in the catalog yet."""
        return News([*self._notices], self.untold())

    def untold(self) -> dict[Count, float]:
        """Return the increase of each counter since it was last written."""
        grown = ((count, value - self._told.get(count, 0.0)) for count, value in self.counted().items())
        return {count: more for count, more in grown if more}

    def settle(self, told: News) -> None:
        """Remove entries from the buffer, after the transaction that wrote them has become durable."""
        known = {id(notice) for notice in told.notices}
        while self._notices and id(self._notices[0]) in known:
            self._notices.popleft()
        for count, more in told.counts.items():
            self._told[count] = self._told.get(count, 0.0) + more


def tell(tx: Writer, session_id: str, news: News) -> None:
    """Write new notices and counts of a process to the catalog."""
    rows = [(*astuple(notice), session_id) for notice in news.notices]
    tx.insert(sqltables.noticed, _COLUMNS, rows)
    known = counts(tx.conn)
    grown = [{"of": c.name, "with": c.labels, "more": n} for c, n in news.counts.items() if c in known]
    new = [{"name": c.name, "labels": c.labels, "value": n} for c, n in news.counts.items() if c not in known]
    if grown:
        tx.conn.execute(_GROW, grown)
    if new:
        tx.conn.execute(insert(sqltables.counts), new)


def counts(conn: Connection) -> dict[Count, float]:
    """Return the written counters of all processes."""
    return {Count(row.name, row.labels): row.value for row in conn.execute(select(sqltables.counts))}
