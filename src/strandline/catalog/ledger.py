"""What this process has counted and noticed, until the catalog knows of it.

Nobody writes to the catalog just because something was counted, least of all who reads. What is new is
written now and then by the session's thread, and when the connection is closed. A process that is killed
takes with it what it has counted since its session's thread looked last.
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
from strandline.catalog.writer import Writer

_MOST = 10_000
"""So many notices wait at most; then the oldest go."""
_AT = sqltables.counts.c
_GROW = (
    update(sqltables.counts)
    .where(_AT.name == bindparam("of"), _AT.labels == bindparam("with"))
    .values(value=_AT.value + bindparam("more"))
)


class Count(NamedTuple):
    """What is counted: its name, and its labels as text."""

    name: str
    labels: str

    @staticmethod
    def of(name: str, labels: Mapping[str, str]) -> Count:
        return Count(name, json.dumps(dict(sorted(labels.items()))))


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something that a process saw happen to versions. ``mismatch``: a plan of the table ``path_id`` did not
    fit, the table expects ``expected`` of the path ``other``, which has ``actual``; then ``cured`` or
    ``failed``. ``conflict``: a part was refused the path, which the operation ``other`` holds. ``arrived``:
    a generation came to the cache, so many seconds after its commit."""

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
    """What a transaction tells: notices, and by how much each count has grown."""

    notices: list[Notice]
    counts: dict[Count, float]


class Ledger:
    """Of one process and one catalog. Safe to use from any thread. ``counted`` says what the process has
    counted so far."""

    def __init__(self) -> None:
        self.counted: Callable[[], dict[Count, float]] = dict
        self._notices: deque[Notice] = deque(maxlen=_MOST)
        self._told: dict[Count, float] = {}
        self.lock = threading.RLock()
        """Held by who tells while it commits, and by who adds up what was told and what was not."""

    def note(self, notice: Notice) -> None:
        self._notices.append(notice)

    def news(self) -> News:
        """Return what the catalog does not know yet."""
        return News([*self._notices], self.untold())

    def untold(self) -> dict[Count, float]:
        """Return by how much counts have grown since they were told."""
        grown = ((count, value - self._told.get(count, 0.0)) for count, value in self.counted().items())
        return {count: more for count, more in grown if more}

    def settle(self, told: News) -> None:
        """The transaction that told it is durable."""
        known = {id(notice) for notice in told.notices}
        while self._notices and id(self._notices[0]) in known:
            self._notices.popleft()
        for count, more in told.counts.items():
            self._told[count] = self._told.get(count, 0.0) + more


def tell(tx: Writer, session_id: str, news: News) -> None:
    """Write what a process has counted and noticed."""
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
    """Return what all processes have counted, as far as they have told."""
    return {Count(row.name, row.labels): row.value for row in conn.execute(select(sqltables.counts))}
