"""``db.stream(path)``: reading a change stream, and user changefeeds as statements.

A stream's position is its hold: everything after it is kept. ``commit`` moves it forward; whoever reads again after a crash begins there,
so no record is lost, and none that was committed is seen again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlalchemy import Connection, func, select, update

from strandline import names
from strandline.catalog import board, chains, paths, schema
from strandline.catalog.paths import Path
from strandline.catalog.tables import TableInfo
from strandline.errors import InvalidArgument, PreconditionFailed
from strandline.model import OP, STEP, Chain, Key, Segment
from strandline.operations.streams import STATEFUL_MODES, StreamSpec
from strandline.sql import statements as st
from strandline.storage import chain as fold
from strandline.storage.changes import Row
from strandline.types import column_to_python, python_to_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.database.database import Database

MODES = ("KEYS_ONLY", "UPDATES", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES")
FORMATS = ("JSON",)


@dataclass(frozen=True)
class Batch:
    """Records of whole commits, in their order. ``step`` is the last of them: commit it when they are dealt with."""

    step: int
    records: list[dict[str, Any]]


@dataclass(frozen=True)
class _Window:
    """What is needed to read ``(after, upto]``. ``before`` is the table's state at ``after``, for modes that show old images."""

    table: TableInfo
    mode: str
    after: int
    upto: int
    logs: tuple[Segment, ...]
    before: Chain | None

    @property
    def columns(self) -> tuple[str, str]:
        """The names of the step and of the operation, which must not hide a column of the table."""
        taken = {n.lower() for n in self.table.schema.names}
        return ("__step" if "step" in taken else "step", "__op" if "op" in taken else "op")


class Stream:
    """A stream by path. Holds no state; may be used from any thread."""

    def __init__(self, database: Database, path: str) -> None:
        self._database = database
        self.path = path

    @property
    def position(self) -> int:
        """The step up to which the stream's records are dealt with."""
        with self._database.guard(), self._database.context.catalog.read() as conn:
            return _position(conn, paths.require(conn, self.path, "stream"))

    def read(self, after: int | None = None, upto: int | None = None) -> DataFrame:
        """The changes in ``(after, upto]`` as a DataFrame: step, op (U upsert, R replace, E erase), key columns and what the stream's mode
        shows of the values. From the stream's position and up to now by default. Reading changes nothing."""
        from strandline.database.reads import local_frame
        from strandline.storage.spark import feed

        with self._database.guard():
            context = self._database.context
            window = self._window(after, upto)
            if sum(s.rows for s in window.logs) <= context.settings.bulk_rows:
                return local_frame(context, _table(self._database, window))
            return feed.changes(
                context.spark,
                context.files,
                window.table.schema,
                window.logs,
                window.after,
                window.upto,
                window.before,
                window.mode,
                window.columns,
            )

    def records(self, after: int | None = None, upto: int | None = None) -> list[dict[str, Any]]:
        """The same as dicts. Needs no Spark; meant for windows that fit into memory."""
        with self._database.guard():
            window = self._window(after, upto)
            return list(_records(self._database, window))

    def poll(self, timeout: float = 0.0, max_commits: int = 100) -> Iterator[Batch]:
        """Batches of records from the stream's position on, waiting up to ``timeout`` seconds for new ones. Call ``commit(batch.step)``
        when a batch is dealt with; what is not committed comes again with the next ``poll``."""
        context = self._database.context
        at = self.position
        deadline = context.clock.now() + timeout
        while True:
            with self._database.guard():
                upto = self._next_stop(at, max_commits)
                batch = Batch(upto, list(_records(self._database, self._window(at, upto)))) if upto > at else None
            if batch is not None:
                at = upto
                deadline = context.clock.now() + timeout
                if batch.records:
                    yield batch
            elif context.clock.now() >= deadline:
                return
            else:
                context.clock.sleep(min(0.05, timeout))

    def commit(self, step: int) -> None:
        """Let go of everything up to ``step``. Durable when it returns."""
        with self._database.guard(), self._database.context.catalog.write() as conn:
            stream = paths.require(conn, self.path, "stream")
            if stream.body.get("owner") is not None:
                raise PreconditionFailed(f"{self.path} belongs to a backup collection", "Add a changefeed of your own.")
            now = board.current_step(conn)
            if not isinstance(step, int) or not _position(conn, stream) <= step <= now:
                raise InvalidArgument(f"cannot move the stream to step {step!r}", f"Give a step from {_position(conn, stream)} to {now}.")
            conn.execute(update(schema.holds).where(schema.holds.c.owner_id == stream.id).values(step=step))

    def _next_stop(self, after: int, commits: int) -> int:
        """The step of the last of the next few commits to the table; ``after`` if there is none."""
        with self._database.context.catalog.read() as conn:
            stream = paths.require(conn, self.path, "stream")
            following = (
                select(schema.commits.c.step)
                .where(schema.commits.c.table_id == stream.parent_id, schema.commits.c.step > after, schema.commits.c.kind == "data")
                .order_by(schema.commits.c.step)
                .limit(commits)
                .subquery()
            )
            last: int | None = conn.execute(select(func.max(following.c.step))).scalar_one()
            return after if last is None else last

    def _window(self, after: int | None, upto: int | None) -> _Window:
        context = self._database.context
        context.session.pin(context.settings.read_seconds)
        with context.catalog.read() as conn:
            stream = paths.require(conn, self.path, "stream")
            held, now = _position(conn, stream), board.current_step(conn)
            begin = held if after is None else after
            end = now if upto is None else upto
            for step in (begin, end):
                if not isinstance(step, int) or isinstance(step, bool):
                    raise InvalidArgument(f"a step is a whole number, not {step!r}", "Use a step that a commit reported.")
            if begin < held:
                raise PreconditionFailed(
                    f"{self.path} has let go of what came before step {held}", f"Read from step {held} on, or add another changefeed."
                )
            if end > now or end < begin:
                raise InvalidArgument(f"cannot read from step {begin} to step {end}", f"The last step is {now}.")
            table = TableInfo.of(_parent(conn, stream))
            logs = chains.log_between(conn, table.id, begin, end)
            before = chains.load(conn, table.id, begin) if stream.body["mode"] in STATEFUL_MODES else None
            return _Window(table, stream.body["mode"], begin, end, logs, before)


def add_changefeed(database: Database, path: str, action: st.AddChangefeed) -> None:
    names.check_name(action.name)
    names.check_not_reserved(action.name, "changefeed")
    settings: dict[str, str] = {}
    for name, value in action.settings:
        if name not in ("MODE", "FORMAT"):
            raise InvalidArgument(
                f"a changefeed has no setting {name}", names.did_you_mean(name, ("MODE", "FORMAT")) or "It has MODE and FORMAT."
            )
        if name in settings:
            raise InvalidArgument(f"the setting {name} is given twice", "Give each setting once.")
        settings[name] = str(value).upper()
    if "MODE" not in settings:
        raise InvalidArgument("a changefeed needs the setting MODE", f"It is one of {', '.join(MODES)}.")
    for name, allowed in (("MODE", MODES), ("FORMAT", FORMATS)):
        if settings.get(name, allowed[0]) not in allowed:
            raise InvalidArgument(f"{name} cannot be {settings[name]!r}", f"It is one of {', '.join(allowed)}.")
    spec = StreamSpec(action.name, settings["MODE"], settings.get("FORMAT", "JSON"), None)
    database.run_operation("create stream", {"table": path, "stream": spec.to_json()})


def drop_changefeed(database: Database, path: str, name: str) -> None:
    with database.context.catalog.read() as conn:
        stream = paths.require(conn, f"{path}/{name}", "stream")
        if stream.body.get("owner") is not None:
            raise PreconditionFailed(
                f"{stream.path} belongs to a backup collection", "It goes with the collection: DROP BACKUP COLLECTION."
            )
    database.run_operation("drop streams", {"streams": [stream.path]})


def _position(conn: Connection, stream: Path) -> int:
    return int(conn.execute(select(schema.holds.c.step).where(schema.holds.c.owner_id == stream.id)).scalar_one())


def _parent(conn: Connection, stream: Path) -> Path:
    found = paths.by_id(conn, stream.parent_id or 0)
    assert found is not None, "a stream has a table"
    return found


def _records(database: Database, window: _Window) -> Iterator[dict[str, Any]]:
    step_name, op_name = window.columns
    table = window.table.schema
    values = [n for n in table.names if n not in table.key]
    for step, op, key, new, old in _changes(database, window):
        record: dict[str, Any] = {step_name: step, op_name: op, **dict(zip(table.key, key, strict=True))}
        new_image = dict(zip(table.names, new, strict=True)) if new is not None else {}
        old_image = dict(zip(table.names, old, strict=True)) if old is not None else {}
        if window.mode == "UPDATES":
            changed = [n for n in values if new is not None and (old is None or new_image[n] != old_image[n])]
            record |= {n: new_image[n] if n in changed else None for n in values} | {"changed": changed}
        elif window.mode == "OLD_IMAGE":
            record |= {n: old_image.get(n) for n in values}
        elif window.mode != "KEYS_ONLY":
            record |= {n: new_image.get(n) for n in values}
        if window.mode == "NEW_AND_OLD_IMAGES":
            record |= {f"old_{n}": old_image.get(n) for n in values}
        yield record


def _changes(database: Database, window: _Window) -> Iterator[tuple[int, str, Key, Row | None, Row | None]]:
    """Step, operation, key, new and old row of each change in order. Old rows are known only in modes that show them."""
    table = window.table.schema
    found = fold.changes(database.context.files, table, window.logs, window.after, window.upto)
    columns = [column_to_python(c.type, found[c.name]) for c in table.columns]
    rows: list[Row] = list(zip(*columns, strict=True))
    at = [table.names.index(n) for n in table.key]
    keys = [tuple(row[i] for i in at) for row in rows]
    state: dict[Key, Row] = {}
    if window.before is not None and window.before.segments:
        state = dict(fold.lookup(database.context.files, table, window.before, set(keys)))
    for step, op, key, row in zip(found[STEP].to_pylist(), found[OP].to_pylist(), keys, rows, strict=True):
        new = None if op == "E" else row
        yield step, op, key, new, state.get(key)
        if new is None:
            state.pop(key, None)
        elif window.before is not None:
            state[key] = new


def _table(database: Database, window: _Window) -> pa.Table:
    """The records as an Arrow table in the columns' own types."""
    records = list(_records(database, window))
    table = window.table.schema
    step_name, op_name = window.columns
    values = [c for c in table.columns if c.name not in table.key]
    arrays: dict[str, pa.Array] = {
        step_name: pa.array([r[step_name] for r in records], pa.int64()),
        op_name: pa.array([r[op_name] for r in records], pa.string()),
    }
    for column in table.key_columns:
        arrays[column.name] = python_to_array(column.type, [r[column.name] for r in records])
    for column in values if window.mode != "KEYS_ONLY" else []:
        arrays[column.name] = python_to_array(column.type, [r[column.name] for r in records])
    if window.mode == "UPDATES":
        arrays["changed"] = pa.array([r["changed"] for r in records], pa.list_(pa.string()))
    for column in values if window.mode == "NEW_AND_OLD_IMAGES" else []:
        arrays[f"old_{column.name}"] = python_to_array(column.type, [r[f"old_{column.name}"] for r in records])
    return pa.table(arrays)
