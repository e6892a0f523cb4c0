"""The one write transaction of a catalog at a moment.

Whatever changes the catalog takes a ``Writer``, whatever only looks takes a connection, which a writer has as
well. So a function says by what it takes whether it may change anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import Connection, update

from strandline.catalog import sqltables

# Built once: SQLAlchemy takes longer to build a statement than SQLite to answer it.
_NEXT = {
    column.name: update(sqltables.clock)
    .where(sqltables.clock.c.id == 1)
    .values({column: column + 1})
    .returning(column)
    for column in (sqltables.clock.c.step, sqltables.clock.c.generation)
}


@dataclass(frozen=True)
class Announcement:
    """What one transaction published under one generation, and the operation that it was for, if any."""

    generation: int
    step: int
    operation_id: str | None
    versions: dict[str, int]


@dataclass
class Writer:
    """``now`` is the time when it began: nobody else has written since, so it is not before what it sees was
    committed. ``announced`` is what will be told when it is durable."""

    conn: Connection
    now: float
    announced: list[Announcement] = field(default_factory=list)
    _step: int | None = None

    @property
    def step(self) -> int:
        """The step at which all that it does becomes real, the next one of the commit clock; it is taken by
        the first who needs it."""
        if self._step is None:
            self._step = int(self.conn.execute(_NEXT["step"]).scalar_one())
        return self._step

    def skip_to(self, step: int) -> None:
        """Let its step, which nobody may have asked for yet, be later than ``step``: that of another
        warehouse, some of whose changes come here."""
        at = sqltables.clock.c
        self.conn.execute(update(sqltables.clock).where(at.id == 1, at.step < step).values(step=step))

    def next_generation(self) -> int:
        """A number for a publication."""
        return int(self.conn.execute(_NEXT["generation"]).scalar_one())
