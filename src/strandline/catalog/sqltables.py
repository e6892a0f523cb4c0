"""The SQL tables of the catalog in SQLAlchemy Core.

Alembic migrations create them; a test checks that the migrations produce the same tables.

Ids are never reused. Bodies are JSON text. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    literal_column,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine, UserDefinedType

metadata = MetaData()

# SQLite generates ids only for a column declared exactly as INTEGER PRIMARY KEY.
Id = BigInteger().with_variant(Integer, "sqlite")

warehouse = Table(
    "warehouse",
    metadata,
    Column("id", Text, primary_key=True),
    Column("created", Float, nullable=False),
    Column("location", Text, nullable=True),
)

# Settings shared by all processes of the warehouse. ``former`` is a larger, earlier value that stays in
# effect until ``former_until``.
settings = Table(
    "settings",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Float, nullable=False),
    Column("former", Float, nullable=True),
    Column("former_until", Float, nullable=True),
)

clock = Table(
    "clock",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("step", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
)

paths = Table(
    "paths",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("parent_id", BigInteger, nullable=True),
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("operation_id", Text, nullable=True),
    Column("created_step", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("owner_id", BigInteger, nullable=True),
    UniqueConstraint("parent_id", "name"),
    sqlite_autoincrement=True,
)

descriptions = Table(
    "descriptions",
    metadata,
    Column("path_id", BigInteger, primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("step", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("time", Float, nullable=True),
)

board = Table(
    "board",
    metadata,
    Column("generation", BigInteger, primary_key=True),
    Column("path_id", BigInteger, primary_key=True),
    Column("path", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("dropped", Boolean, nullable=False),
    Column("time", Float, nullable=False),
    Column("step", BigInteger, nullable=True),
    Column("operation_id", Text, nullable=True),
)

tables = Table(
    "tables",
    metadata,
    Column("path_id", BigInteger, primary_key=True),
    Column("step", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("kept_from", BigInteger, nullable=False),
    Column("followed_step", BigInteger, nullable=True),
    Column("maintained_by", Text, nullable=True),
    Column("committed_bytes", BigInteger, nullable=False, server_default="0"),
    Column("merged_bytes", BigInteger, nullable=False, server_default="0"),
)

segments = Table(
    "segments",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("role", Text, nullable=False),
    Column("fresh", Boolean, nullable=False),
    Column("stepped", Boolean, nullable=False),
    Column("after", BigInteger, nullable=False),
    Column("upto", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("file", Text, nullable=True, unique=True),
    Column("checksum", Text, nullable=False),
    Column("min_key", Text, nullable=True),
    Column("max_key", Text, nullable=True),
    Column("data", LargeBinary, nullable=True),
    sqlite_autoincrement=True,
)

chains = Table(
    "chains",
    metadata,
    Column("table_id", BigInteger, primary_key=True),
    Column("segment_id", BigInteger, ForeignKey("segments.id"), primary_key=True),
    Column("added", BigInteger, nullable=False),
    Column("removed", BigInteger, nullable=True),
    Column("reaches", BigInteger, nullable=False),
    Column("superseded", Boolean, nullable=False),
    Column("removed_at", Float, nullable=True),
    Index("chains_by_segment", "segment_id"),
)

# The columns from ``author`` to ``deleted`` are for display. They are NULL for index tables and old commits.
commits = Table(
    "commits",
    metadata,
    Column("table_id", BigInteger, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("time", Float, nullable=False),
    Column("author", Text, nullable=True),
    Column("statement", Text, nullable=True),
    Column("inserted", BigInteger, nullable=True),
    Column("updated", BigInteger, nullable=True),
    Column("deleted", BigInteger, nullable=True),
    Index("commits_by_step", "step"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("expires", Float, nullable=False),
    Column("reads_from", BigInteger, nullable=True),
    Column("seen", Float, nullable=True),
)

pins = Table(
    "pins",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=True, unique=True),
    Column("step", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

holds = Table(
    "holds",
    metadata,
    Column("owner_id", BigInteger, primary_key=True),
    Column("table_id", BigInteger, primary_key=True),
    Column("step", BigInteger, nullable=False),
    Column("keeps_state", Boolean, nullable=False),
    Index("holds_by_table", "table_id"),
)

garbage = Table(
    "garbage",
    metadata,
    Column("file", Text, primary_key=True),
    Column("time", Float, nullable=False),
)

# Results of verifications. ``path_id`` is a backup, or a collection if some of its objects were verified.
verified = Table(
    "verified",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("path_id", BigInteger, nullable=False),
    Column("level", Text, nullable=False),
    Column("time", Float, nullable=False),
    Column("body", Text, nullable=False),
    Index("verified_by_path", "path_id"),
    sqlite_autoincrement=True,
)

# The last write of each ``writer`` to a table, for deduplication; ``version`` is its number.
applied = Table(
    "applied",
    metadata,
    Column("writer", Text, primary_key=True),
    Column("table_id", BigInteger, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
    Column("time", Float, nullable=False),
)

# ``state``: running or cancelling; at the end done, failed or cancelled. ``body``: the plan, a record of the
# operation's kind. ``session_id``: the session of the process that runs the operation.

operations = Table(
    "operations",
    metadata,
    Column("number", Id, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("progress", Text, nullable=False),
    Column("result", Text, nullable=True),
    Column("error", Text, nullable=True),
    Column("session_id", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("ended", Float, nullable=True),
    Column("process", Text, nullable=True),
    Index("operations_by_end", "ended"),
    sqlite_autoincrement=True,
)

# ``since``: the time when the schedule was created, changed or resumed. Runs due before it are ignored.
schedules = Table(
    "schedules",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),
    Column("body", Text, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("since", Float, nullable=False),
    sqlite_autoincrement=True,
)

# One row for each due time, whichever process starts the run. ``work``: backup, verification or drill; a
# schedule runs each of these once at a time. ``task``: what was due. ``retry_at``: the time to retry a failed
# run.
schedule_runs = Table(
    "schedule_runs",
    metadata,
    Column("schedule_id", BigInteger, primary_key=True, autoincrement=False),
    Column("work", Text, primary_key=True),
    Column("due", Float, primary_key=True),
    Column("task", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("operation_id", Text, nullable=True),
    Column("began", Float, nullable=True),
    Column("ended", Float, nullable=True),
    Column("retry_at", Float, nullable=True),
    Column("note", Text, nullable=True),
    Index("schedule_runs_by_state", "state"),
)

# Access tokens of the service. ``id`` is the public part of the token, ``hash`` the SHA-256 of its secret
# part. ``paths``: JSON list of path prefixes; NULL: all paths.
tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("paths", Text, nullable=True),
    Column("hash", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=True),
    Column("revoked", Float, nullable=True),
)

# Browser sessions of the service. ``hash`` is the SHA-256 of the cookie. (``sessions`` are processes.)
web_sessions = Table(
    "web_sessions",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("token_id", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
)

# Changes of state through the service, and changes of tokens. ``result`` is ``ok`` or the code of an error;
# NULL: the change has begun, and its result is not recorded.
audit = Table(
    "audit",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("time", Float, nullable=False),
    Column("token_id", Text, nullable=True),
    Column("principal", Text, nullable=False),
    Column("remote", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("result", Text, nullable=True),
    Column("operation_id", Text, nullable=True),
    Index("audit_by_time", "time"),
    sqlite_autoincrement=True,
)

# One row for each problem, open or cleared. ``number``: how often it was raised.
alarms = Table(
    "alarms",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("level", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("hint", Text, nullable=False),
    Column("raised_at", Float, nullable=False),
    Column("cleared_at", Float, nullable=True),
    Column("acknowledged_at", Float, nullable=True),
    Column("acknowledged_by", Text, nullable=True),
    Column("last_sent", Float, nullable=True),
    Column("times_sent", BigInteger, nullable=False),
    Index("alarms_by_end", "cleared_at"),
)

# The last message about an alarm on a channel. ``number`` and ``level`` are those of the alarm at that time.
# ``sure``: whether the receiver accepted the message.
alarm_sends = Table(
    "alarm_sends",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("event", Text, nullable=False),
    Column("level", Text, nullable=False),
    Column("time", Float, nullable=False),
    Column("times", BigInteger, nullable=False),
    Column("sure", Boolean, nullable=False),
)

# ``claimed_by``: the sender that may use the channel until ``claimed_until``. ``failures``: failed attempts
# since the last success.
alarm_channels = Table(
    "alarm_channels",
    metadata,
    Column("name", Text, primary_key=True),
    Column("claimed_by", Text, nullable=True),
    Column("claimed_until", Float, nullable=True),
    Column("failures", BigInteger, nullable=False),
    Column("failed_since", Float, nullable=True),
    Column("retry_at", Float, nullable=True),
    Column("note", Text, nullable=True),
)

# One row. ``holder`` looks for problems, next at ``next_at``; from ``until`` on, another process may.
alarm_watch = Table(
    "alarm_watch",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("holder", Text, nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("next_at", Float, nullable=False),
    Column("until", Float, nullable=False),
)

# The columns after ``body`` are for display. ``began`` and ``process`` describe the present attempt, or the
# last one, which took ``seconds``.
parts = Table(
    "parts",
    metadata,
    Column("operation_id", Text, primary_key=True),
    Column("id", BigInteger, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("stage", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("changed", Float, nullable=False),
    Column("body", Text, nullable=False),
    Column("increment", BigInteger, nullable=True),
    Column("path", Text, nullable=True),
    Column("shard", BigInteger, nullable=True),
    Column("bytes", BigInteger, nullable=True),
    Column("began", Float, nullable=True),
    Column("seconds", Float, nullable=True),
    Column("process", Text, nullable=True),
    Column("errors", Text, nullable=True),
)

# A path has at most one claim: the primary key prevents a second one.
claims = Table(
    "claims",
    metadata,
    Column("path_id", BigInteger, primary_key=True),
    Column("operation_id", Text, nullable=False),
    Column("part_id", BigInteger, nullable=False),
    Column("published", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Index("claims_by_operation", "operation_id"),
)

# History of claims: one row for each part that claimed a path or joined the claim. These rows are kept for
# ``version_history_seconds``, while ``claims`` has only the claims of running operations.
claimed = Table(
    "claimed",
    metadata,
    Column("operation_id", Text, primary_key=True),
    Column("path_id", BigInteger, primary_key=True),
    Column("part_id", BigInteger, primary_key=True),
    Column("writer", BigInteger, nullable=False),
    Column("published", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("time", Float, nullable=False),
)

# Notices of processes: plans with versions that did not fit, refused claims, and publications that reached
# their caches.
noticed = Table(
    "noticed",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("event", Text, nullable=False),
    Column("time", Float, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("path_id", BigInteger, nullable=True),
    Column("other", Text, nullable=True),
    Column("operation_id", Text, nullable=True),
    Column("part_id", BigInteger, nullable=True),
    Column("expected", BigInteger, nullable=True),
    Column("actual", BigInteger, nullable=True),
    Column("generation", BigInteger, nullable=True),
    Column("seconds", Float, nullable=True),
    sqlite_autoincrement=True,
)

# Counters, summed over all processes. ``labels`` is a JSON object.
counts = Table(
    "counts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("labels", Text, primary_key=True),
    Column("value", Float, nullable=False),
)

Index("paths_by_operation", paths.c.operation_id)
Index("paths_by_owner", paths.c.owner_id)

# A literal instead of a parameter, so that the database sees that the partial index covers the condition.
is_open = parts.c.state != literal_column("'done'")
# In PostgreSQL, migrations create these indexes with the same conditions. Declaring them here would import
# the dialect of PostgreSQL for every command, even with a catalog in SQLite.
Index("parts_open", parts.c.operation_id, parts.c.stage, parts.c.id, sqlite_where=is_open)
_is_begun = parts.c.began.is_not(None) & parts.c.seconds.is_(None)
Index("parts_begun", parts.c.operation_id, sqlite_where=_is_begun)


class _Numbers(UserDefinedType[Any]):
    """A list of integers, sent to PostgreSQL as the text of an array.

    PostgreSQL's driver would convert the integers one by one, which is slow.
    """

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **_: Any) -> str:
        return "BIGINT[]"

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        return lambda numbers: f"{{{','.join(map(str, numbers))}}}"


class _Among(FunctionElement[bool]):
    """The condition that a value is in a list."""

    inherit_cache = True
    type = Boolean()

    def self_group(self, against: Any = None) -> Any:
        """Return the condition unchanged.

        SQLite has no boolean type, so SQLAlchemy would compare the condition with 1. For such a comparison
        SQLite uses no index and reads every row of the table.
        """
        return self


def among(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Build the condition that a column has one of the values bound to ``name``.

    All values are bound as one parameter, because a statement with one parameter per value takes longer to
    build than to run.
    """
    listed: TypeEngine[Any] = _Numbers() if isinstance(column.type, Integer) else ARRAY(column.type)
    return _Among(column, bindparam(name, type_=listed.with_variant(JSON(), "sqlite")))


@compiles(_Among, "postgresql")
def _among_array(element: Any, compiler: Any, **given: Any) -> str:
    # Not IN with a subquery: the planner would treat it as a join, and might read the whole table.
    column, values = (compiler.process(clause, **given) for clause in element.clauses)
    return f"({column} = ANY({values}))"


@compiles(_Among, "sqlite")
def _among_json(element: Any, compiler: Any, **given: Any) -> str:
    column, values = (compiler.process(clause, **given) for clause in element.clauses)
    return f"({column} IN (SELECT value FROM json_each({values})))"


class _TextIn(FunctionElement[str]):
    """A field of a JSON object, as text."""

    inherit_cache = True
    type = Text()


def text_in(column: ColumnElement[Any], field: str) -> ColumnElement[str]:
    """Build the expression for ``field`` of a column's JSON object, as text; NULL if the field is missing."""
    return _TextIn(column, literal_column(f"'{field}'"))


@compiles(_TextIn, "postgresql")
def _text_in_postgresql(element: Any, compiler: Any, **given: Any) -> str:
    column, field = (compiler.process(clause, **given) for clause in element.clauses)
    return f"(CAST({column} AS JSON) ->> {field})"


@compiles(_TextIn, "sqlite")
def _text_in_sqlite(element: Any, compiler: Any, **given: Any) -> str:
    column, field = (compiler.process(clause, **given) for clause in element.clauses)
    return f"json_extract({column}, '$.' || {field})"
