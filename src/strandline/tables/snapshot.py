"""One moment: all tables, with their descriptions and indexes, as they were at one step. And what to do with
a statement when the catalog has moved on under its feet."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar

from strandline.catalog import commits
from strandline.catalog.moment import Mark, Moment, Named, TableAt
from strandline.catalog.stale import Ended, Stale
from strandline.catalog.tables import IndexRef, TableInfo
from strandline.errors import Conflict, Corrupted, InvalidArgument
from strandline.model import Chain, Key, Segment, State
from strandline.retry import tries
from strandline.runtime import Runtime

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.sql.references import TableRef

Keys: TypeAlias = "Collection[Key] | pa.Table"
"""Keys one by one, or the key columns of a table."""

T = TypeVar("T")

_LONGEST_PAUSE = 0.25
"""Between two tries of a statement, in seconds."""


@dataclass(frozen=True)
class TableView:
    """A table at a step: its description then, and the chain that folds to its rows.

    ``increment``: the table is an incremental backup, which shows its changes, tombstones included, rather
    than a state."""

    info: TableInfo
    chain: Chain
    increment: bool = False

    @property
    def state(self) -> State:
        """Its rows, as the store takes them."""
        return State(self.info.schema, self.chain)

    def plus(self, pending: tuple[Segment, ...]) -> TableView:
        return replace(self, chain=self.chain.plus(pending)) if pending else self


class Snapshot:
    """One moment: a step (default: the last one) and the tree as it was at that step. Descriptions, indexes
    and chains that are read through it are all as of the step; a path that was created, restored or built
    after it is not in it, and what can no longer be told is Stale: the statement then starts again with a
    newer one.

    It is taken when it is first asked for something, with all tables that are ``named`` at once. What it
    shows stays readable while the object exists and, for data frames that outlive it, for as long as ``lend``
    says. Not for use by two threads at once."""

    def __init__(self, runtime: Runtime, step: int | None = None, named: Iterable[Named] = ()) -> None:
        _check_step(step)
        self.mark = runtime.moments.mark()
        """All moments that it may read are later than this."""
        self._runtime = runtime
        self._at = step
        self._named = tuple(named)
        self._taken: Moment | None = None

    def take(self) -> Moment:
        """Fix the moment, if that has not happened yet."""
        if self._taken is None:
            self._taken = self._runtime.moments.read(self._named, self._at)
        return self._taken

    @property
    def step(self) -> int:
        return self.take().step

    def table(self, path: str) -> TableView:
        if self._taken is None and all(path != table.path for table in self._named):
            self._named = (*self._named, Named(path))
        return _view(self._runtime.moments.table(self.take(), path))

    def index(self, table: TableView, ref: IndexRef) -> TableView:
        """Return the implementation table of an index that a table of this snapshot lists: found by its id,
        whatever is at its path now."""
        return _view(self._runtime.moments.index(self.take(), table.info, ref))

    def note(self, segments: Iterable[Segment]) -> None:
        """Others are read as well, which were found elsewhere at this moment or later."""
        self.take().segments.update(s.id for s in segments)

    def lend(self) -> None:
        """Keep what it shows readable for data frames that were made of it."""
        taken = self.take()
        self._runtime.session.lend(taken.step, taken.since, self._runtime.settings.read_seconds)


def _view(table: TableAt) -> TableView:
    return TableView(table.info, table.chain, table.increment)


def _check_step(step: int | None) -> None:
    if step is not None and (not isinstance(step, int) or isinstance(step, bool)):
        raise InvalidArgument(
            f"a step is a whole number, not {step!r}", "Use a step that describe() or a commit reported."
        )


class Reader:
    """Where a query reads from: a snapshot, or (a subclass) a transaction with its own changes on top."""

    is_fixed: ClassVar[bool] = True
    """Whether it shows the same rows whenever it is asked."""
    is_over = False
    """Whether what it shows may be gone: it was a transaction, which has ended."""

    def __init__(self, runtime: Runtime, snapshot: Snapshot | None = None) -> None:
        self.runtime = runtime
        self.snapshot = snapshot or Snapshot(runtime)

    def lend(self) -> None:
        """What it shows goes into a data frame, which may be read when the reader is gone."""
        self.snapshot.lend()

    def view(self, path: str) -> TableView:
        return self.snapshot.table(path)

    def index(self, table: TableView, ref: IndexRef) -> TableView:
        return self.snapshot.index(table, ref)

    def read_keys(self, view: TableView, keys: Keys) -> None:
        """Note that the outcome depends on the rows of these keys."""

    def read_whole(self, view: TableView) -> None:
        """Note that the outcome may depend on any row of the table."""


# --- when the moment has passed ------------------------------------------------------------------------


def resolve(reader: Reader, ref: TableRef) -> tuple[Reader, TableView]:
    """Return the table that a reference means, and where to read it from."""
    if ref.backup is not None:
        stored = reader.runtime.open_backup(reader.runtime, *ref.backup)
        return stored, stored.view(ref.path)
    if ref.is_now:
        return reader, reader.view(ref.path)
    step = ref.version
    if ref.timestamp is not None:
        with reader.runtime.catalog.read() as conn:
            step = commits.step_at(conn, ref.timestamp.timestamp())
    if step is None:
        raise InvalidArgument(f"nothing had been committed at {ref.timestamp}", "Name a later time.")
    past = Reader(reader.runtime, Snapshot(reader.runtime, step, [Named(ref.path, ref.index)]))
    view = past.view(ref.path)
    past.lend()  # Whoever has looked back once will do so again.
    return past, view


@contextmanager
def once(runtime: Runtime, mark: Mark) -> Iterator[None]:
    """What reads moments, and writes, after a mark and cannot be repeated by itself. Whoever has slept for
    long may look for files that have been collected since: that is no damage, but Stale."""
    try:
        yield
    except Corrupted:
        if not runtime.moments.lost_since(mark):
            raise
        raise Ended(0, "what it read has been collected meanwhile") from None


def repeat(runtime: Runtime, attempt: Callable[[], T]) -> T:
    """Return what ``attempt`` answers, which plans from the beginning each time it is called; CONFLICT when
    the tries are used up."""
    reason = ""
    count = runtime.settings.commit_tries
    for _ in tries(runtime.clock, _pause, count=count):
        try:
            with once(runtime, runtime.moments.mark()):
                return attempt()
        except Stale as stale:
            reason = stale.reason
            if isinstance(stale, Ended):
                runtime.session.confirm()
    raise Conflict(
        f"others changed what the statement depends on {count} times in a row ({reason}); nothing was "
        "committed"
    )


def _pause(number: int) -> float:
    return random.uniform(0, min(0.002 * 2**number, _LONGEST_PAUSE))
