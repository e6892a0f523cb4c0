"""``db.stream(path)``: read a change stream; and the statements about changefeeds.

All changes after a stream's position are kept. ``commit`` moves the position forward. After a crash, a reader
starts at the position again: it loses no record, and sees no committed record twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection

from strandline.catalog import chains, commits, paths, tables
from strandline.catalog.operations import CREATED_STATES
from strandline.catalog.paths import Path, require_id
from strandline.catalog.streams import StreamBody
from strandline.catalog.tables import TableInfo
from strandline.catalog.transactions import current_step
from strandline.errors import Internal, InvalidArgument, PreconditionFailed
from strandline.operations.streams import StreamPaths, StreamRequest, StreamSpec, alter_stream
from strandline.sql import statements as st
from strandline.sql.options import StatementOptions
from strandline.storage.feed import FORMATS, MODES, STATEFUL_MODES, Feed
from strandline.tables.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.api.database import Database


T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """Records of whole commits, in order.

    Attributes:
        step: Step of the last of these commits. Pass it to ``Stream.commit`` when the records are processed.
        records: The records.
    """

    step: int
    records: list[dict[str, Any]]


@dataclass(frozen=True)
class StreamLag:
    """How far a reader is behind its table.

    Attributes:
        position: Step up to which the reader has read.
        head: Step of the last change.
        steps: Number of steps between them.
        rows: Number of changes after the position. Changes of one key that were merged meanwhile count once.
        age: Age of the oldest change after the position, in seconds. 0 if there is none.
    """

    position: int
    head: int
    steps: int
    rows: int
    age: float


class Stream:
    """A handle for the stream at a path. It holds no state. Thread-safe."""

    def __init__(self, database: Database, path: str) -> None:
        self._database = database
        self.path = path

    def __repr__(self) -> str:
        return f"<Stream {self.path}>"

    @property
    def position(self) -> int:
        """The step up to which the reader has committed records."""
        with self._database._guard(), self._database._runtime.catalog.read() as conn:
            return position(conn, _open_stream(conn, self.path))

    @property
    def head(self) -> int:
        """The step of the last record, or the position if no record follows it."""
        with self._database._guard(), self._database._runtime.catalog.read() as conn:
            stream = _open_stream(conn, self.path)
            return max(position(conn, stream), chains.state(conn, stream.parent_id or 0).step)

    def lag(self, after: int | None = None) -> StreamLag:
        """Return how far a reader is behind. Reads the catalog only.

        Args:
            after: the step up to which the reader has read, such as the end offset of a streaming query.
                None: the position of the stream.
        """
        runtime = self._database._runtime
        with self._database._guard(), runtime.catalog.read() as conn:
            stream = _open_stream(conn, self.path)
            table_id = stream.parent_id or 0
            _check_step(after or 0)
            at = max(position(conn, stream), after or 0)
            head = max(at, chains.state(conn, table_id).step)
            since = commits.first_time_after(conn, table_id, at)
            age = 0.0 if since is None else max(0.0, runtime.clock.now() - since)
            return StreamLag(at, head, head - at, chains.log_rows(conn, table_id, at, head), age)

    def read(self, after: int | None = None, upto: int | None = None) -> DataFrame:
        """Return the changes in ``(after, upto]`` as a DataFrame (default: from the position to now).

        Columns are step, op (U upsert, R replace, E erase), the key columns, and values according to the mode
        of the stream. If a column of the table has one of these names, the name gets an underscore in front.
        Reading changes nothing; the changes stay readable until they are committed.
        """
        runtime = self._database._runtime

        def frame(feed: Feed) -> DataFrame:
            runtime.session.lend(feed.upto, runtime.clock.now(), runtime.settings.read_seconds)
            return runtime.store.feed(feed)

        return self._read(after, upto, frame)

    def records(self, after: int | None = None, upto: int | None = None) -> list[dict[str, Any]]:
        """Return the changes of ``read`` as dicts, ordered by step and key, without Spark.

        Times are aware datetimes in UTC. The changes must fit into memory.
        """
        return self._read(after, upto, lambda feed: list(self._database._runtime.store.records(feed)))

    def poll(self, timeout: float = 0.0, max_commits: int = 100) -> Iterator[Batch]:
        """Yield batches of records from the stream's position on, of about ``max_commits`` commits each.

        Waits up to ``timeout`` seconds for new records. Call ``commit(batch.step)`` when a batch is
        processed. The next ``poll`` returns uncommitted records again.
        """
        if not isinstance(max_commits, int) or max_commits < 1:
            raise InvalidArgument(f"a batch cannot have {max_commits!r} commits", "Ask for at least one.")
        runtime = self._database._runtime
        at = self.position
        deadline = runtime.clock.now() + timeout
        while True:
            with self._database._guard():
                upto = self._next_stop(at, max_commits)
                batch = Batch(upto, self.records(at, upto)) if upto > at else None
            if batch is not None:
                at = upto
                deadline = runtime.clock.now() + timeout
                if batch.records:
                    yield batch
            elif runtime.clock.now() >= deadline:
                return
            else:
                runtime.clock.sleep(min(0.05, timeout))

    def commit(self, step: int) -> None:
        """Move the position to ``step``, durably. Changes up to this step may be garbage-collected."""
        with self._database._guard(), self._database._runtime.catalog.write() as tx:
            stream = _open_stream(tx.conn, self.path)
            _own_stream(tx.conn, self.path, "Add a changefeed of your own.")
            _check_step(step)
            here, now = position(tx.conn, stream), current_step(tx.conn)
            if not here <= step <= now:
                raise InvalidArgument(
                    f"cannot move the stream to step {step}", f"Give a step from {here} to {now}."
                )
            tables.move_hold(tx, stream.id, step)

    def _next_stop(self, after: int, count: int) -> int:
        """Return the step of the last of the next ``count`` commits after step ``after``.

        Return ``after`` if no commit follows.
        """
        with self._database._runtime.catalog.read() as conn:
            return commits.stop_after(conn, _open_stream(conn, self.path).parent_id, after, count)

    def _read(self, after: int | None, upto: int | None, give: Callable[[Feed], T]) -> T:
        """Call ``give`` with the changes in a range; retry if files were garbage-collected meanwhile."""
        runtime = self._database._runtime

        def attempt() -> T:
            snapshot = Snapshot(runtime)
            feed = window_of(self._database, self.path, after, upto)
            snapshot.note((*feed.logs, *(feed.before.segments if feed.before is not None else ())))
            return give(feed)

        with self._database._guard():
            return self._database._transactions.attempts.repeat(attempt)


def window_of(database: Database, path: str, after: int | None, upto: int | None) -> Feed:
    """Return the changes of a stream in ``(after, upto]``, for the store to read.

    Args:
        database: the warehouse.
        path: the stream.
        after: the step after which the changes begin. None: the position of the stream.
        upto: the last step of the changes. None: the last step of the warehouse.
    """
    with database._runtime.catalog.read() as conn:
        stream = _open_stream(conn, path)
        record = stream.record(StreamBody)
        held, now = position(conn, stream), current_step(conn)
        begin = held if after is None else after
        end = now if upto is None else upto
        _check_step(begin)
        _check_step(end)
        if begin < held:
            begun = record.cursor
            why = "" if begun is None or begin >= begun else f" The changefeed begins at step {begun}."
            raise PreconditionFailed(
                f"{path} no longer has changes before step {held}",
                f"Read from step {held} on, or add another changefeed.{why}",
            )
        if end > now or end < begin:
            raise InvalidArgument(f"cannot read from step {begin} to step {end}", f"The last step is {now}.")
        table = TableInfo.of(require_id(conn, stream.parent_id))
        before = chains.load(conn, table.id, begin) if record.mode in STATEFUL_MODES else None
        return Feed(
            schema=table.schema,
            mode=record.mode,
            after=begin,
            upto=end,
            logs=chains.log_between(conn, table.id, begin, end),
            before=before,
        )


def _open_stream(conn: Connection, path: str) -> Path:
    """Return a stream. Refuse a stream that is still being created: it keeps no changes yet."""
    stream = paths.require(conn, path, "stream")
    if stream.state in CREATED_STATES:
        paths.check_ready(stream)
    return stream


def position(conn: Connection, stream: Path) -> int:
    hold = tables.find_hold(conn, stream.id)
    if hold is None:
        raise Internal(f"the stream {stream.path} has no position")
    return hold.step


def add_changefeed(database: Database, path: str, action: st.AddChangefeed) -> None:
    paths.check_own_name(action.name, "changefeed")
    settings = _settings(action)
    if "MODE" not in settings:
        raise InvalidArgument("a changefeed needs the setting MODE", f"It is one of {', '.join(MODES)}.")
    spec = StreamSpec(name=action.name, mode=settings["MODE"], format=settings.get("FORMAT", "JSON"))
    database._operations.run("create stream", StreamRequest(table=path, stream=spec))


def alter_changefeed(database: Database, path: str, action: st.AlterChangefeed) -> None:
    settings = _settings(action)
    with database._runtime.catalog.write() as tx:
        stream = _own_stream(tx.conn, f"{path}/{action.name}", "Only its collection uses it.")
        alter_stream(tx, stream, mode=settings.get("MODE"))


def drop_changefeed(database: Database, path: str, name: str) -> None:
    with database._runtime.catalog.read() as conn:
        hint = "It is dropped with its collection: DROP BACKUP COLLECTION."
        stream = _own_stream(conn, f"{path}/{name}", hint)
    database._operations.run("drop streams", StreamPaths(streams=(stream.path,)))


def _own_stream(conn: Connection, path: str, hint: str) -> Path:
    """Return a stream. Refuse a stream that belongs to a backup collection, with ``hint``."""
    stream = paths.require(conn, path, "stream")
    if stream.record(StreamBody).owner is not None:
        raise PreconditionFailed(f"{stream.path} belongs to a backup collection", hint)
    return stream


def _settings(action: st.AddChangefeed | st.AlterChangefeed) -> dict[str, str]:
    options = StatementOptions("a changefeed", action.settings, ("MODE", "FORMAT"))
    allowed = {"MODE": MODES, "FORMAT": FORMATS}
    return {name: options.choice(name, allowed[name]) for name, _ in action.settings}


def _check_step(step: Any) -> None:
    if not isinstance(step, int) or isinstance(step, bool):
        raise InvalidArgument(f"a step is a whole number, not {step!r}", "Use a step that a commit reported.")
