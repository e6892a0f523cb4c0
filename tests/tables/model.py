"""A model of a table as dictionaries, and random statements for the model and the database."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, Literal

from strandline import Database
from strandline.model import order
from strandline.types import Type

UTC = timezone.utc

POOL: dict[str, list[Any]] = {
    "Bool": [True, False],
    "Int8": [-128, 127, 0, 1],
    "Int16": [-32768, 32767, 0],
    "Int32": [-(2**31), 2**31 - 1, 0, 7],
    "Int64": [-(2**63), 2**63 - 1, 0, 1, 2],
    "Uint8": [0, 255, 1],
    "Uint16": [0, 65535],
    "Uint32": [0, 2**32 - 1, 5],
    "Uint64": [0, 2**64 - 1, 2**63, 3],
    "Float": [0.0, -0.0, 0.10000000149011612, math.inf, math.nan, 1.401298464324817e-45],
    "Double": [0.0, -0.0, 0.1, -1.7976931348623157e308, math.nan, -math.inf],
    "Decimal(38,10)": [
        Decimal("9999999999999999999999999999.9999999999"),
        Decimal("0.0000000000"),
        Decimal("-1.5000000000"),
    ],
    "Decimal(5,2)": [Decimal("999.99"), Decimal("-0.01"), Decimal("0.00")],
    "String": [b"", b"\0", b"\xff\xfe", b"abc"],
    "Utf8": ["", "a", "A", "日本 😀", "a'b\"c`d\\e\n", "\U0010ffff", "\uffff"],
    "Json": ["null", '{"a": [1, 2.50]}', ' "x" '],
    "Date": [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    "Datetime": [datetime(1, 1, 2, tzinfo=UTC), datetime(2024, 2, 29, 12, tzinfo=UTC)],
    "Timestamp": [
        datetime(1, 1, 2, 0, 0, 0, 1, tzinfo=UTC),
        datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2024, 1, 1, tzinfo=UTC),
    ],
}
"""A few extreme values of each type, so that keys repeat."""


@dataclass(frozen=True)
class Column:
    name: str
    type: Type
    not_null: bool = False

    @property
    def definition(self) -> str:
        return f"{quoted(self.name)} {self.type.name}{' NOT NULL' if self.not_null else ''}"


@dataclass(frozen=True)
class Index:
    name: str
    columns: tuple[str, ...]
    cover: tuple[str, ...]
    unique: bool = False

    @property
    def definition(self) -> str:
        kind = "GLOBAL UNIQUE SYNC" if self.unique else "GLOBAL SYNC"
        cover = f" COVER ({', '.join(map(quoted, self.cover))})" if self.cover else ""
        return f"INDEX {quoted(self.name)} {kind} ON ({', '.join(map(quoted, self.columns))}){cover}"


Row = dict[str, Any]
Key = tuple[Any, ...]


class Refused(Exception):
    """The model refuses a statement with one of these codes."""

    def __init__(self, *codes: str) -> None:
        self.codes = set(codes)


@dataclass
class Model:
    """The expected rows of the table and its indexes."""

    columns: list[Column]
    key: tuple[str, ...]
    indexes: list[Index] = field(default_factory=list)
    rows: dict[Key, Row] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Column:
        return next(c for c in self.columns if c.name == name)

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    def key_of(self, row: Mapping[str, Any]) -> Key:
        return tuple(row[name] for name in self.key)

    @property
    def create(self) -> str:
        parts = [c.definition for c in self.columns] + [f"PRIMARY KEY ({', '.join(map(quoted, self.key))})"]
        return f"CREATE TABLE t ({', '.join([*parts, *(i.definition for i in self.indexes)])})"

    def shown(self) -> list[tuple[Any, ...]]:
        """Return all rows, ordered by key, as a query shows them."""
        return [
            self._shown(self.names, row)
            for _, row in sorted(self.rows.items(), key=lambda item: order(item[0]))
        ]

    def entries(self, index: Index) -> list[tuple[Any, ...]]:
        key = [*index.columns, *(k for k in self.key if k not in index.columns)]
        found = sorted(self.rows.values(), key=lambda row: order(tuple(row[n] for n in key)))
        return [self._shown([*key, *index.cover], row) for row in found]

    def check_unique(self, *indexes: Index) -> None:
        """Refuse repeated keys in unique indexes, as the end of a commit and an index build do."""
        for index in indexes:
            keys = [tuple(row[n] for n in index.columns) for row in self.rows.values()]
            whole = [key for key in keys if None not in key]
            if index.unique and len(set(whole)) < len(whole):
                raise Refused("PRECONDITION_FAILED")

    def _shown(self, names: Sequence[str], row: Row) -> tuple[Any, ...]:
        return tuple(row[n] for n in names)

    # --- statements --------------------------------------------------------------------------------------

    def write(self, mode: str, rows: Sequence[Row]) -> None:
        for names, group in itertools.groupby(rows, key=tuple):
            self._write(mode, names, list(group))

    def _write(self, mode: str, names: tuple[str, ...], rows: Sequence[Row]) -> None:
        touched: dict[Key, Row] = {}
        codes = set()
        for row in rows:
            key = self.key_of(row)
            now = touched.get(key, self.rows.get(key))
            if mode == "INSERT" and now is not None:
                codes.add("PRECONDITION_FAILED")
            rest = now if mode == "UPSERT" and now is not None else dict.fromkeys(self.names)
            touched[key] = {**rest, **row}
        if any(row[c.name] is None for row in touched.values() for c in self.columns if c.not_null):
            codes.add("INVALID_ARGUMENT")
        if codes:
            raise Refused(*codes)
        self.rows |= touched

    def update(self, values: Row, where: Condition) -> None:
        found = {key: {**row, **values} for key, row in self.rows.items() if where.holds(row)}
        if any(row[c.name] is None for row in found.values() for c in self.columns if c.not_null):
            raise Refused("INVALID_ARGUMENT")
        self.rows |= found

    def delete(self, where: Condition) -> None:
        self.rows = {key: row for key, row in self.rows.items() if not where.holds(row)}

    def delete_on(self, keys: Sequence[Key]) -> None:
        if any(
            part is None and self[name].not_null
            for key in keys
            for name, part in zip(self.key, key, strict=True)
        ):
            raise Refused("INVALID_ARGUMENT")
        for key in keys:
            self.rows.pop(key, None)


@dataclass(frozen=True)
class Condition:
    """The condition ``column sign value``; without a column, all rows."""

    column: str | None = None
    sign: Literal["=", ">=", "<", "IS NULL"] = "="
    value: Any = None

    def holds(self, row: Row) -> bool:
        if self.column is None:
            return True
        there = row[self.column]
        if self.sign == "IS NULL":
            return there is None
        if there is None or self.value is None:
            return False
        return bool({"=": there == self.value, ">=": there >= self.value, "<": there < self.value}[self.sign])

    @property
    def sql(self) -> str:
        if self.column is None:
            return ""
        if self.sign == "IS NULL":
            return f" WHERE {quoted(self.column)} IS NULL"
        return f" WHERE {quoted(self.column)} {self.sign} {literal(self.value)}"


@dataclass(frozen=True)
class Write:
    mode: Literal["UPSERT", "INSERT", "REPLACE"]
    rows: tuple[Row, ...]
    as_text: bool = False

    def on(self, model: Model) -> None:
        model.write(self.mode, self.rows)

    def run(self, db: Database) -> None:
        if not self.as_text:
            getattr(db.table("t"), self.mode.lower())(list(self.rows))
            return
        for names, group in itertools.groupby(self.rows, key=tuple):
            values = ", ".join(f"({', '.join(literal(v) for v in row.values())})" for row in group)
            db.sql(f"{self.mode} INTO t ({', '.join(map(quoted, names))}) VALUES {values}")


@dataclass(frozen=True)
class Update:
    values: Row
    where: Condition

    def on(self, model: Model) -> None:
        model.update(self.values, self.where)

    def run(self, db: Database) -> None:
        sets = ", ".join(f"{quoted(name)} = {literal(value)}" for name, value in self.values.items())
        db.sql(f"UPDATE t SET {sets}{self.where.sql}")


@dataclass(frozen=True)
class Delete:
    where: Condition

    def on(self, model: Model) -> None:
        model.delete(self.where)

    def run(self, db: Database) -> None:
        db.sql(f"DELETE FROM t{self.where.sql}")


@dataclass(frozen=True)
class DeleteOn:
    keys: tuple[Key, ...]
    as_text: bool

    def on(self, model: Model) -> None:
        model.delete_on(self.keys)

    def run(self, db: Database) -> None:
        if not self.as_text:
            db.table("t").delete(list(self.keys))
            return
        key = ", ".join(map(quoted, db.describe("/t")["key"]))
        db.sql(
            f"DELETE FROM t ON ({key}) VALUES {', '.join(f'({chr(44).join(map(literal, k))})' for k in self.keys)}"
        )


@dataclass(frozen=True)
class Moved:
    """UPSERT or REPLACE from a SELECT of the same table, with one key column mapped one to one."""

    mode: Literal["UPSERT", "REPLACE"]
    column: str
    names: tuple[str, ...]
    where: Condition
    sql: str
    function: Callable[[Any], Any]

    def on(self, model: Model) -> None:
        chosen = [row for row in model.rows.values() if self.where.holds(row)]
        model._write(
            self.mode,
            self.names,
            [
                {n: self.function(row[n]) if n == self.column else row[n] for n in self.names}
                for row in chosen
            ],
        )

    def run(self, db: Database) -> None:
        items = ", ".join(self.sql.format(quoted(n)) if n == self.column else quoted(n) for n in self.names)
        db.sql(
            f"{self.mode} INTO t ({', '.join(map(quoted, self.names))}) SELECT {items} FROM t{self.where.sql}"
        )


Statement = Write | Update | Delete | DeleteOn | Moved

MOVES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "bool": ("NOT {}", lambda v: None if v is None else not v),
    "int": (
        "CASE WHEN {0} % 2 = 0 THEN {0} + 1 ELSE {0} - 1 END",
        lambda v: None if v is None else v + 1 if v % 2 == 0 else v - 1,
    ),
    "text": ("concat('x', {})", lambda v: None if v is None else "x" + v),
    "bytes": ("concat({}, X'00')", lambda v: None if v is None else v + b"\0"),
    "decimal": ("-{}", lambda v: None if v is None else -v if v else v),
}
"""One-to-one mappings of values by kind of type, in SQL and in Python."""


def quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "``") + "`"


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    text = value.isoformat() if isinstance(value, date) else value
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def has_literal(value: Any) -> bool:
    """Return whether SQL has a literal: NaN and infinities need a cast, and so Spark."""
    return not isinstance(value, float) or math.isfinite(value)


def comparable(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return a value that compares as in SQL: NaN equals itself, and the zeros are equal."""
    return [repr(tuple(v + 0.0 if isinstance(v, float) else v for v in row)) for row in rows]
