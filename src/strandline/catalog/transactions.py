"""The write transaction, and the clock that orders all of them.

A function that changes the catalog takes a ``Writer``; one that only reads takes a connection, which a writer
has as well. So the signature tells whether a function may change anything.

Writers are serialized: SQLite by BEGIN IMMEDIATE, PostgreSQL by locking the one row of ``clock`` first. So a
step becomes visible before any later one, and a write transaction sees every earlier commit. They take turns,
first come, first served (``write_queue``). Readers get a snapshot and never wait.
``strandline.catalog.connection.Catalog`` opens both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, Text, bindparam, func, insert, select, update
from sqlalchemy.exc import DBAPIError

from strandline.catalog import sqltables
from strandline.errors import PreconditionFailed

# Built once: SQLAlchemy takes longer to build a statement than SQLite takes to answer it.
_NEXT = {
    column.name: update(sqltables.clock)
    .where(sqltables.clock.c.id == 1)
    .values({column: column + 1})
    .returning(column)
    for column in (sqltables.clock.c.step, sqltables.clock.c.generation)
}
_STEP = select(sqltables.clock.c.step).where(sqltables.clock.c.id == 1)

_NEW_IDS = select(
    func.nextval(func.pg_get_serial_sequence(bindparam("table", type_=Text), "id"))
).select_from(func.generate_series(1, bindparam("count")))

FEW_ROWS = 50
"""Below this number of rows, an ordinary INSERT is used."""


STEPS_PER_SECOND = 2**20
"""Upper bound for the commits per second of any warehouse."""


def latest_step(now: float) -> int:
    """Return the largest step that is accepted from another warehouse.

    Without a limit, a forged number could exhaust the clock, and nothing could be committed any more. The
    limit grows faster than any warehouse commits, so backups taken after such a number are accepted as well.
    """
    return STEPS_PER_SECOND * max(int(now), 2**30)


def current_step(conn: Connection) -> int:
    """Return the step of the last commit."""
    return int(conn.execute(_STEP).scalar_one())


class Told(NamedTuple):
    """A path to be announced. A tuple, because there may be very many."""

    path_id: int
    path: str
    version: int
    dropped: bool


class Announcement(NamedTuple):
    """The publications of one transaction, and the operation that made them, if any."""

    generation: int
    step: int
    operation_id: str | None
    versions: dict[str, int]


@dataclass
class Writer:
    """A write transaction.

    ``now``: the time when it began, after all commits that it sees. ``announced``: the publications to report
    when it is durable.
    """

    conn: Connection
    now: float
    announced: list[Announcement] = field(default_factory=list)
    _step: int | None = None

    @property
    def step(self) -> int:
        """The step of this transaction, the next one of the commit clock; taken at the first use."""
        if self._step is None:
            self._step = int(self.conn.execute(_NEXT["step"]).scalar_one())
        return self._step

    def skip_to(self, step: int) -> None:
        """Make this transaction's step later than ``step``, that of imported changes of another warehouse.

        Must be called before the step is used.
        """
        if step > latest_step(self.now):
            raise PreconditionFailed(
                f"the step {step} is later than any step that a warehouse can have reached",
                "Its backup was changed, or the clock of this machine is wrong.",
            )
        at = sqltables.clock.c
        self.conn.execute(update(sqltables.clock).where(at.id == 1, at.step < step).values(step=step))

    def announce(self, told: Sequence[Told], operation_id: str | None = None) -> int:
        """Announce changed or dropped paths to the caches of all processes; return their generation.

        All of them have the same generation. The descriptions are recorded already.
        """
        number = int(self.conn.execute(_NEXT["generation"]).scalar_one())
        columns = ("generation", "path_id", "path", "version", "dropped", "time", "step", "operation_id")
        rows = [(number, *each, self.now, self.step, operation_id) for each in told]
        self.insert(sqltables.board, columns, rows)
        versions = {path: version for _, path, version, _ in told}
        self.announced.append(Announcement(number, self.step, operation_id, versions))
        return number

    def new_ids(self, table: Table, count: int) -> Sequence[int]:
        """Take ascending ids for rows, which must be inserted before the next call.

        One statement, however many: the rows themselves are inserted faster without returning their ids.
        """
        if self.conn.dialect.name == "postgresql":
            return sorted(self.conn.execute(_NEW_IDS, {"table": table.name, "count": count}).scalars())
        # Only this transaction writes, and SQLite counts on from the ids that are inserted.
        last = self.conn.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,))
        first = 1 + (last.scalar_one_or_none() or 0)
        return range(first, first + count)

    def insert(self, table: Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert many rows in the fastest way of the database, which returns nothing.

        The values must be of types that the driver itself knows.
        """
        if not rows:
            return
        listed = ", ".join(columns)
        if self.conn.dialect.name != "postgresql":
            marks = ", ".join("?" for _ in columns)
            self.conn.exec_driver_sql(f"INSERT INTO {table.name} ({listed}) VALUES ({marks})", list(rows))
        elif len(rows) < FEW_ROWS:
            self.conn.execute(insert(table), [dict(zip(columns, row, strict=True)) for row in rows])
        else:
            _copy(self.conn, f"COPY {table.name} ({listed}) FROM STDIN", rows)


def _copy(conn: Connection, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
    driver: Any = conn.dialect.dbapi
    try:
        with conn.connection.cursor().copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except driver.Error as error:
        # Callers handle the errors of SQLAlchemy.
        lost = conn.dialect.is_disconnect(error, None, None)
        raise DBAPIError.instance(
            statement, None, error, driver.Error, connection_invalidated=lost, dialect=conn.dialect
        ) from error
