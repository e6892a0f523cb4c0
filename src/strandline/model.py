"""The data model: schemas, indexes, segments and chains.

All classes are immutable and do no I/O. Step ranges are always written ``(after, upto]``: exclusive below,
inclusive above.

The segments of a chain are in order of time. ``split`` divides them into three parts, and every engine builds
the state from these parts:

1. The rows of the segments before the first log that may overwrite keys, without the keys that part 2
   touches.
2. From the first to the last log that may overwrite keys: the last change of each key, unless it is an erase.
3. The rows of the later logs, whose keys are all new.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from strandline import records
from strandline.records import Record, later, stored_as
from strandline.types import Type, parse_type

Key: TypeAlias = tuple[Any, ...]
"""The values of a table's key columns, in key order; NULL (``None``) sorts first."""

Role: TypeAlias = Literal["base", "log"]
Blob: TypeAlias = bytes
Cover: TypeAlias = Literal["none", "some", "all"]
IndexKind: TypeAlias = Literal["GLOBAL SYNC", "GLOBAL ASYNC"]

OP = "__strandline_op"
"""Column of a log segment: ``U`` upsert, ``R`` reset by REPLACE, ``E`` erase."""
WAS_HI = "__strandline_was_hi"
WAS_LO = "__strandline_was_lo"
"""Columns of a log segment: the two signed 64-bit halves of the hash of the replaced row.

NULL if the change replaced no row.
"""
STEP = "__strandline_step"
"""Column of a stepped segment: the step at which the row was committed."""
DELETED = "__ydb_incrBackupImpl_deleted"
"""Additional column of an incremental backup: true for a tombstone."""

RESERVED_PREFIXES = ("__ydb_", "__strandline_")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    A table never reuses an ``id`` or a ``physical`` name. So a column that is dropped and added again under
    its old name does not bring the old values back.

    Attributes:
        physical: The name in Parquet files.
    """

    id: int
    name: str
    type: Type
    not_null: bool = False
    physical: str = ""


@dataclass(frozen=True)
class TableSchema:
    """The columns and the key of a table.

    Attributes:
        bounds: The first keys, or prefixes of keys, of the second and later shards, ascending.
        next_id: The id of the next column that is added.
        used: All physical names that were ever assigned, in lower case.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    bounds: tuple[Key, ...] = stored_as(
        default=(),
        write=lambda bounds: [encode_key(bound) for bound in bounds],
        read=lambda body: tuple(decode_key(bound) for bound in _to_list(body)),
    )
    next_id: int = 1
    used: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {c.name: c for c in self.columns})
        object.__setattr__(self, "_names", tuple(c.name for c in self.columns))

    def __getitem__(self, name: str) -> Column:
        return self._by_name[name]  # type: ignore[attr-defined, no-any-return]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name  # type: ignore[attr-defined]

    @property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(self[name] for name in self.key)

    @property
    def value_columns(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if c.name not in self.key)

    @property
    def names(self) -> tuple[str, ...]:
        return self._names  # type: ignore[attr-defined, no-any-return]

    @staticmethod
    def of(columns: list[tuple[str, Type, bool]], key: tuple[str, ...]) -> TableSchema:
        schema = TableSchema((), key)
        for name, type_, not_null in columns:
            schema = schema.with_column(name, type_, not_null)
        return schema

    def with_column(self, name: str, type_: Type, not_null: bool = False) -> TableSchema:
        physical = name if name.lower() not in self.used else f"{name}~{self.next_id}"
        column = Column(self.next_id, name, type_, not_null, physical)
        return replace(
            self,
            columns=(*self.columns, column),
            next_id=self.next_id + 1,
            used=self.used | {physical.lower()},
        )

    def without_column(self, name: str) -> TableSchema:
        return replace(self, columns=tuple(c for c in self.columns if c.name != name))

    def with_name(self, name: str, new: str) -> TableSchema:
        """Return the schema with a renamed column; its physical name does not change."""
        return replace(
            self,
            columns=tuple(replace(c, name=new) if c.name == name else c for c in self.columns),
            key=_exchange(self.key, name, new),
        )


def _exchange(names: tuple[str, ...], name: str, new: str) -> tuple[str, ...]:
    return tuple(new if each == name else each for each in names)


def index_words(kind: str, unique: bool) -> str:
    """Return the kind of an index as SQL writes it, such as ``GLOBAL UNIQUE SYNC``."""
    return kind.replace("GLOBAL", "GLOBAL UNIQUE") if unique else kind


@dataclass(frozen=True, kw_only=True)
class IndexDef(Record):
    """The definition of a global index.

    The key of its implementation table is the indexed columns, then the other columns of the primary key. The
    covered columns are the values of the implementation table.

    Attributes:
        columns: The indexed columns.
        cover: The covered columns.
        unique: No two rows have the same values in all of ``columns``, unless one of the values is NULL.
        stored: Columns that were renamed since the index was built, each with its name in the files of the
            implementation table.
    """

    name: str
    kind: IndexKind
    columns: tuple[str, ...]
    cover: tuple[str, ...] = ()
    unique: bool = later(False)
    stored: tuple[tuple[str, str], ...] = later(())

    @property
    def is_sync(self) -> bool:
        return self.kind == "GLOBAL SYNC"

    @property
    def words(self) -> str:
        """The kind of the index as SQL writes it, such as ``GLOBAL UNIQUE SYNC``."""
        return index_words(self.kind, self.unique)

    def impl_schema(self, table: TableSchema) -> TableSchema:
        """Return the schema of the implementation table: new column ids, same names and types.

        A column that is nullable in the table is nullable here, too.
        """
        key = (*self.columns, *(name for name in table.key if name not in self.columns))
        names = (*key, *(name for name in self.cover if name not in key))
        made = TableSchema.of([(name, table[name].type, table[name].not_null) for name in names], key)
        if not self.stored:
            return made
        stored = dict(self.stored)
        columns = tuple(replace(c, physical=stored.get(c.name, c.physical)) for c in made.columns)
        return replace(made, columns=columns, used=frozenset(c.physical.lower() for c in columns))

    def with_name(self, name: str, new: str) -> IndexDef:
        """Return the definition with a renamed column of its implementation table."""
        stored = dict(self.stored)
        physical = stored.pop(name, name)
        if physical != new:
            stored[new] = physical
        return replace(
            self,
            columns=_exchange(self.columns, name, new),
            cover=_exchange(self.cover, name, new),
            stored=tuple(sorted(stored.items())),
        )


@dataclass(frozen=True, kw_only=True)
class Segment:
    """An immutable set of rows, sorted by key, then by step if a key occurs more than once.

    - ``role``: ``base`` has one row per key, the state at ``upto``, without OP and WAS columns. ``log`` has
      the changes of the commits in ``(after, upto]``, with OP and WAS columns.
    - ``stepped``: rows have the column STEP; otherwise every row belongs to step ``upto``.
    - ``fresh``: every key occurs once in the segment, and was not in the table before. So its rows are read
      without a merge, and older segments are not searched for its keys. Base segments are fresh.
    - ``file``: the name of a Parquet file in the warehouse; None for an inline segment, whose rows the
      catalog keeps in ``data`` (Arrow IPC stream).

    A segment that is not committed yet has ``id`` 0, ``after`` 0 and ``upto`` PENDING.
    """

    id: int
    role: Role
    fresh: bool
    stepped: bool
    after: int
    upto: int
    rows: int
    bytes: int
    file: str | None
    checksum: str
    min_key: Key | None
    max_key: Key | None
    data: Blob | None = None


def is_elsewhere(file: str) -> bool:
    """Return whether a segment's file is outside the warehouse, in the repository of a collection.

    Files in the warehouse have relative names.
    """
    return file.startswith("/") or "://" in file


def object_of(file: str) -> str:
    """Return the repository object that a file outside the warehouse refers to.

    A suffix after ``#`` distinguishes several uses of one object. It is removed.
    """
    return file.rpartition("#")[0] or file


PENDING = 2**62
"""The step of uncommitted changes: later than the step of any commit.

The n-th statement of a transaction uses ``PENDING + n``, so that later statements win.
"""


@dataclass(frozen=True)
class Chain:
    """The segments that fold to a table's state at ``step``: base first, then logs by ascending ``upto``.

    Rows of stepped segments with a later step are not part of the state; ``PENDING`` logs always are.
    """

    segments: tuple[Segment, ...]
    step: int

    def plus(self, pending: tuple[Segment, ...]) -> Chain:
        """Return the chain with uncommitted changes added, for later statements of a transaction."""
        return replace(self, segments=(*self.segments, *pending))

    def narrow(self, within: KeyRange) -> Chain:
        """Return the chain without the segments that have no key in a range.

        The result folds to the right rows only for keys in the range.
        """
        if not within.is_limited:
            return self
        return replace(self, segments=tuple(s for s in self.segments if may_hold(s, within)))


BEGINNING = -1
"""A step before all steps."""


@dataclass(frozen=True)
class KeyRange:
    """A range of keys.

    Attributes:
        lower: The first key, or a prefix of keys. None: no lower limit.
        upper: The last key, or a prefix of keys. None: no upper limit.
        closed: True if keys that begin with ``upper`` are included.
    """

    lower: Key | None = None
    upper: Key | None = None
    closed: bool = False

    @property
    def is_limited(self) -> bool:
        return self.lower is not None or self.upper is not None


EVERYWHERE = KeyRange()


@dataclass(frozen=True)
class State:
    """The rows of a table at a step: the schema, and the chain that folds to the rows.

    Attributes:
        within: The range of keys to which the rows are restricted.
    """

    schema: TableSchema
    chain: Chain
    within: KeyRange = EVERYWHERE

    def narrow(self, within: KeyRange) -> State:
        """Return the part of the state in a range, without segments that have no key in it."""
        return State(self.schema, self.chain.narrow(within), within)


def visible(chain: Chain) -> list[Segment]:
    """Return the segments of a chain that contribute to its state, oldest first."""
    return [s for s in chain.segments if s.rows and cover(s, BEGINNING, chain.step) != "none"]


def split(segments: Sequence[Segment]) -> tuple[Sequence[Segment], Sequence[Segment], Sequence[Segment]]:
    """Split segments around the logs that may change existing keys.

    Return three parts: the segments before the first such log, those from the first to the last such log, and
    those after the last.
    """
    rough = [i for i, s in enumerate(segments) if not s.fresh]
    first, last = (rough[0], rough[-1] + 1) if rough else (len(segments), len(segments))
    return segments[:first], segments[first:last], segments[last:]


def cover(segment: Segment, after: int, upto: int) -> Cover:
    """Return whether none, some or all of the segment's rows have a step in ``(after, upto]``.

    Pending rows always count.
    """
    if segment.upto >= PENDING or (
        after < segment.upto <= upto and (not segment.stepped or after <= segment.after)
    ):
        return "all"
    if not segment.stepped or segment.upto <= after or segment.after >= upto:
        return "none"
    return "some"


def may_hold(segment: Segment, within: KeyRange) -> bool:
    """Return whether the segment may contain keys of a range."""
    if segment.min_key is None or segment.max_key is None:
        return False
    lower, upper = within.lower, within.upper
    if lower is not None and order(segment.max_key[: len(lower)]) < order(lower):
        return False
    if upper is None:
        return True
    first, end = order(segment.min_key[: len(upper)]), order(upper)
    return first <= end if within.closed else first < end


@dataclass(frozen=True)
class Digest:
    """The row count and the 128-bit digest of a state: the sum of the hashes of its rows modulo 2**128."""

    rows: int = 0
    value: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.rows + other.rows, (self.value + other.value) % 2**128)

    def __sub__(self, other: Digest) -> Digest:
        return Digest(self.rows - other.rows, (self.value - other.value) % 2**128)

    @property
    def hex(self) -> str:
        return f"{self.value:032x}"

    @staticmethod
    def parse(rows: int, text: str) -> Digest:
        return Digest(rows, int(text, 16))


_HEX = re.compile("[0-9a-f]{32}", re.ASCII)


def _read_digest(body: Any) -> Digest:
    rows, text = body
    if type(rows) is not int or type(text) is not str or _HEX.fullmatch(text) is None:
        raise ValueError(f"{body!r} is not a number of rows and a digest")
    return Digest.parse(rows, text)


def _write_range(within: KeyRange) -> list[Any]:
    ends = [None if end is None else encode_key(end) for end in (within.lower, within.upper)]
    return [*ends, within.closed]


def _read_range(body: Any) -> KeyRange:
    lower, upper, closed = body
    if type(closed) is not bool:
        raise ValueError(f"{body!r} is not a range of keys")
    ends = [None if end is None else decode_key(_to_list(end)) for end in (lower, upper)]
    return KeyRange(ends[0], ends[1], closed)


records.keep(Digest, write=lambda digest: [digest.rows, digest.hex], read=_read_digest)
records.keep(Type, write=lambda type_: type_.name, read=parse_type)
records.keep(KeyRange, write=_write_range, read=_read_range)


def encode_key(key: Key) -> list[Any]:
    """Return a key, or a prefix of a key, as JSON values that include their types.

    So no schema is needed to decode the values.
    """
    return [_encode(value) for value in key]


_DECODERS: dict[str, Callable[[str], Any]] = {
    "bytes": base64.b64decode,
    "decimal": Decimal,
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
}


def decode_key(body: Any) -> Key:
    return tuple(_decode(value) for value in _to_list(body))


def _to_list(body: Any) -> list[Any]:
    if type(body) is not list:
        raise ValueError(f"{body!r} is not a list")
    return body


def _encode(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, datetime):
        return {"timestamp": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        raise ValueError(f"{value!r} is not a value of a key")
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    try:
        return _DECODERS[kind](text)
    except (ArithmeticError, LookupError, TypeError) as error:
        raise ValueError(f"{value!r} is not a value of a key") from error


def order(key: Key) -> tuple[Any, ...]:
    """Return a sort key for keys in which NULL sorts first."""
    return tuple((0,) if value is None else (1, value) for value in key)
