"""The write transaction, and the clock that orders write transactions.

A function that changes the catalog takes a ``Writer``; a function that only reads takes a connection. So the
signature says whether a function may change anything. A ``Writer`` has a connection for functions that read.

Write transactions are serialized: in SQLite by BEGIN IMMEDIATE, in PostgreSQL by first locking the one row of
``clock``. So a step becomes visible before any later step, and a write transaction sees every earlier commit.
Waiting writers form a queue (``write_queue``). Readers get a snapshot and never wait.
``strandline.catalog.connection.Catalog`` opens transactions of both kinds.
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
"""From this number of rows on, rows are sent to PostgreSQL in bulk instead of with an ordinary INSERT."""


STEPS_PER_SECOND = 2**20
"""Upper bound for the commits per second of any warehouse."""


def latest_step(now: float) -> int:
    """Return the largest step that is accepted from another warehouse.

    Without a limit, a forged step could exhaust the clock, and nothing could be committed any more. The limit
    grows faster than any warehouse commits. So a warehouse whose clock was moved close to the limit never
    exceeds it, and its own backups are accepted as well.
    """
    return STEPS_PER_SECOND * max(int(now), 2**30)


def current_step(conn: Connection) -> int:
    """Return the step of the last commit."""
    return int(conn.execute(_STEP).scalar_one())


class Told(NamedTuple):
    """A changed or dropped path to announce. A named tuple, because there may be very many."""

    path_id: int
    path: str
    version: int
    dropped: bool


class Announcement(NamedTuple):
    """The publications of one transaction.

    Attributes:
        operation_id: the operation that published them. None: no operation did.
        versions: the version of each path, by path.
    """

    generation: int
    step: int
    operation_id: str | None
    versions: dict[str, int]


@dataclass
class Writer:
    """A write transaction.

    Attributes:
        now: the time when the transaction began, which is later than all commits that it sees.
        announced: the publications to report when the transaction is durable.
    """

    conn: Connection
    now: float
    announced: list[Announcement] = field(default_factory=list)
    _step: int | None = None

    @property
    def step(self) -> int:
        """The step of this transaction. The first use advances the commit clock and takes its step."""
        if self._step is None:
            self._step = int(self.conn.execute(_NEXT["step"]).scalar_one())
        return self._step

    def skip_to(self, step: int) -> None:
        """Make this transaction's step later than ``step``, the step of changes from another warehouse.

        Must be called before the first use of this transaction's step.
        """
        if step > latest_step(self.now):
            raise PreconditionFailed(
                f"the step {step} is later than any step that a warehouse can have reached",
                "Its backup was changed, or the clock of this machine is wrong.",
            )
        at = sqltables.clock.c
        self.conn.execute(update(sqltables.clock).where(at.id == 1, at.step < step).values(step=step))

    def announce(self, told: Sequence[Told], operation_id: str | None = None) -> int:
        """Announce changed or dropped paths to the caches of all processes, and return their generation.

        All paths are announced under the same generation. The caller must have recorded their descriptions
        before.
        """
        number = int(self.conn.execute(_NEXT["generation"]).scalar_one())
        columns = ("generation", "path_id", "path", "version", "dropped", "time", "step", "operation_id")
        rows = [(number, *each, self.now, self.step, operation_id) for each in told]
        self.insert(sqltables.board, columns, rows)
        versions = {path: version for _, path, version, _ in told}
        self.announced.append(Announcement(number, self.step, operation_id, versions))
        return number

    def new_ids(self, table: Table, count: int) -> Sequence[int]:
        """Return ascending ids for new rows. The caller must insert the rows before the next call.

        One statement gets all ids. Inserting the rows is then faster, because it need not return their ids.
        """
        if self.conn.dialect.name == "postgresql":
            return sorted(self.conn.execute(_NEW_IDS, {"table": table.name, "count": count}).scalars())
        # No other transaction writes now, and SQLite's next id follows the largest inserted one.
        last = self.conn.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,))
        first = 1 + (last.scalar_one_or_none() or 0)
        return range(first, first + count)

    def insert(self, table: Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert many rows in the fastest way of the database, without returning ids.

        Args:
            rows: the rows; their values have types that the database driver supports without SQLAlchemy.
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
        # Raise the error as SQLAlchemy's, because callers handle only errors of SQLAlchemy.
        lost = conn.dialect.is_disconnect(error, None, None)
        raise DBAPIError.instance(
            statement, None, error, driver.Error, connection_invalidated=lost, dialect=conn.dialect
        ) from error
