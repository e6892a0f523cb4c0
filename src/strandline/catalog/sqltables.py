"""The tables of the catalog, as SQLAlchemy Core sees them. Alembic migrations create them; a test compares
the two.

Ids are never used again. Bodies are JSON text. Times are seconds since the epoch.
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

# SQLite numbers rows by itself only for a column declared exactly INTEGER PRIMARY KEY.
Id = BigInteger().with_variant(Integer, "sqlite")

warehouse = Table(
    "warehouse",
    metadata,
    Column("id", Text, primary_key=True),
    Column("created", Float, nullable=False),
    Column("location", Text, nullable=True),
)

# Settings that all processes of the warehouse rely on. ``former``: a larger value that holds until
# ``former_until``.
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

commits = Table(
    "commits",
    metadata,
    Column("table_id", BigInteger, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("time", Float, nullable=False),
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

# ``path_id``: a backup, of which ``body`` tells how it was found; or a collection, some of whose objects
# were looked at together.
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

# The last write of each ``writer`` to a table that is to be applied once: ``version`` is its number.
applied = Table(
    "applied",
    metadata,
    Column("writer", Text, primary_key=True),
    Column("table_id", BigInteger, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
    Column("time", Float, nullable=False),
)

# Operations. ``state`` of an operation: running, cancelling, then done, failed or cancelled. ``body`` is what
# its kind decided when it was planned; ``session_id`` is the process that carries it out.

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

# What comes after ``body`` is for people to see. ``began``, ``process``: the present work, or the last one,
# which took so many ``seconds``.
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

# A path has at most one claim: the key itself keeps two operations from holding it.
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

# Who has claimed a path, and who has joined: one row for each part that wanted it. ``claims`` are those of
# operations that run; these stay for a while, as what is on the board does.
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

# What processes have noticed of versions: plans that did not fit, refused claims, publications that came to
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

# What all processes have counted together. ``labels`` is a JSON object.
counts = Table(
    "counts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("labels", Text, primary_key=True),
    Column("value", Float, nullable=False),
)

Index("paths_by_operation", paths.c.operation_id)
Index("paths_by_owner", paths.c.owner_id)

# Written out, for the database to see that a statement asks for nothing else than what the index has.
is_open = parts.c.state != literal_column("'done'")
# Migrations make these in PostgreSQL with the same condition. To say so here would load its dialect for every
# command, on SQLite too.
Index("parts_open", parts.c.operation_id, parts.c.stage, parts.c.id, sqlite_where=is_open)
_is_begun = parts.c.began.is_not(None) & parts.c.seconds.is_(None)
Index("parts_begun", parts.c.operation_id, sqlite_where=_is_begun)


class _Numbers(UserDefinedType[Any]):
    """Whole numbers as PostgreSQL writes a list of them: its driver looks at each, which takes longer than
    the statement."""

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **_: Any) -> str:
        return "BIGINT[]"

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        return lambda numbers: f"{{{','.join(map(str, numbers))}}}"


class _Among(FunctionElement[bool]):
    """Whether a value is in a list."""

    inherit_cache = True
    type = Boolean()

    def self_group(self, against: Any = None) -> Any:
        """Return it as it is. SQLite has no boolean values, so it would be compared with 1 otherwise, and no
        index serves that: every row of the table is looked at."""
        return self


def among(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Return whether a column has one of the values that are bound to ``name``. They go to the database as
    one value, however many there are: a statement that names each takes longer to write than to carry out."""
    listed: TypeEngine[Any] = _Numbers() if isinstance(column.type, Integer) else ARRAY(column.type)
    return _Among(column, bindparam(name, type_=listed.with_variant(JSON(), "sqlite")))


@compiles(_Among, "postgresql")
def _among_array(element: Any, compiler: Any, **given: Any) -> str:
    # Not IN with a query: the planner would see a table to be joined, and might read all of the other one.
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
    """Return a text that the JSON object in a column has under the name ``field``; NULL if it has none."""
    return _TextIn(column, literal_column(f"'{field}'"))


@compiles(_TextIn, "postgresql")
def _text_in_postgresql(element: Any, compiler: Any, **given: Any) -> str:
    column, field = (compiler.process(clause, **given) for clause in element.clauses)
    return f"(CAST({column} AS JSON) ->> {field})"


@compiles(_TextIn, "sqlite")
def _text_in_sqlite(element: Any, compiler: Any, **given: Any) -> str:
    column, field = (compiler.process(clause, **given) for clause in element.clauses)
    return f"json_extract({column}, '$.' || {field})"
