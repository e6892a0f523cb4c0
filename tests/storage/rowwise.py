"""Writes row by row in plain Python: the reference for the columnar code and for Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from strandline.errors import InvalidArgument, PreconditionFailed
from strandline.model import Digest, IndexDef, Key, TableSchema
from strandline.storage.arrow import write as columnar
from strandline.storage.arrow.write import Changes
from strandline.storage.keys import keys_of
from strandline.storage.rows import Mode, Row
from strandline.types.arrays import column_to_python, python_to_array


@dataclass(frozen=True)
class Change:
    """The change of one key by a commit.

    ``old`` None: the key did not exist before; ``new`` None: it does not exist afterwards.
    """

    key: Key
    op: Literal["U", "R", "E"]
    old: Row | None
    new: Row | None


def in_columns(schema: TableSchema, changes: Sequence[Change]) -> Changes:
    keys = [dict(zip(schema.key, change.key, strict=True)) for change in changes]
    new = [
        tuple(map(key.get, schema.names)) if c.new is None else c.new
        for c, key in zip(changes, keys, strict=True)
    ]
    old = [change.old for change in changes if change.old is not None]
    had = np.array([change.old is not None for change in changes], np.bool_)
    ops = pa.array([change.op for change in changes], pa.string())
    return Changes(schema, ops, table_of(schema, schema.names, new), had, table_of(schema, schema.names, old))


def one_by_one(changes: Changes) -> list[Change]:
    def rows(table: pa.Table) -> list[Row]:
        return list(
            zip(
                *(column_to_python(c.type, table.column(c.name)) for c in changes.schema.columns), strict=True
            )
        )

    old = iter(rows(changes.old))
    return [
        Change(key, op, next(old) if had else None, None if op == "E" else row)
        for key, op, had, row in zip(
            keys_of(changes.schema, changes.new),
            changes.ops.to_pylist(),
            changes.had.tolist(),
            rows(changes.new),
            strict=True,
        )
    ]


def apply_write(
    schema: TableSchema,
    mode: Mode,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    old: Mapping[Key, Row],
) -> list[Change]:
    """Return the changes that a statement makes, one per key, with the last image of a repeated key.

    ``rows`` are canonical values of ``columns``, which include the key; ``old`` has the existing rows of
    these keys. The modes are described at ``storage.arrow.write.apply_write``.
    """
    if lost := [name for name in schema.key if name not in columns]:
        raise InvalidArgument(f"the key column {lost[0]} is missing", "Name every column of the primary key.")
    if unknown := [name for name in columns if name not in schema]:
        raise InvalidArgument(
            f"there is no column {unknown[0]}", f"The columns are {', '.join(schema.names)}."
        )
    at = {name: i for i, name in enumerate(columns)}
    key_of = _picker([at[name] for name in schema.key])
    source = [at.get(name) for name in schema.names]
    changes: dict[Key, Change] = {}
    for row in rows:
        key = key_of(row)
        before = old.get(key)
        now = changes[key].new if key in changes else before
        if mode in ("DELETE", "DELETE ON"):
            if mode == "DELETE ON" or before is not None:
                changes[key] = Change(key, "E", before, None)
            continue
        if mode == "UPDATE" and now is None:
            continue
        if mode == "INSERT" and now is not None:
            raise PreconditionFailed(
                f"the key {_show(schema, key)} {'occurs twice in the rows' if before is None else 'is already in the table'}",
                "Use UPSERT to change rows that exist, and name each key once.",
            )
        rest = now if mode in ("UPSERT", "UPDATE") and now is not None else (None,) * len(source)
        new = tuple(rest[i] if j is None else row[j] for i, j in enumerate(source))
        changes[key] = Change(key, "R" if mode == "REPLACE" else "U", before, new)
    _check_not_null(schema, changes.values())
    return list(changes.values())


def index_changes(
    schema: TableSchema, index: IndexDef, impl: TableSchema, changes: Iterable[Change]
) -> list[Change]:
    """Return the changes of an index that follow from a table's changes.

    ``impl`` is the schema of the index's implementation table.
    """
    place = {name: i for i, name in enumerate(schema.names)}
    entry_of = _picker([place[name] for name in impl.names])
    key_of = _picker([place[name] for name in impl.key])
    found: list[Change] = []
    for change in changes:
        old = None if change.old is None else entry_of(change.old)
        new = None if change.new is None else entry_of(change.new)
        old_key = None if change.old is None else key_of(change.old)
        new_key = None if change.new is None else key_of(change.new)
        if old_key is not None and old_key == new_key:
            if not _same(old, new):
                found.append(Change(old_key, "U", old, new))
            continue
        if old_key is not None:
            found.append(Change(old_key, "E", old, None))
        if new_key is not None:
            found.append(Change(new_key, "U", None, new))
    return found


def is_fresh(changes: Iterable[Change]) -> bool:
    """Return True if all changes add new keys."""
    return all(change.op != "E" and change.old is None for change in changes)


def log_table(schema: TableSchema, changes: Sequence[Change]) -> tuple[pa.Table, Digest]:
    return columnar.log_table(in_columns(schema, changes))


def _picker(places: Sequence[int]) -> Callable[[Sequence[Any]], Row]:
    """Return a function that takes the values at some positions out of a row.

    It is called several times per row, so it must be fast.
    """
    if len(places) == 1:
        only = places[0]
        return lambda row: (row[only],)
    return itemgetter(*places)


def _tombstones(schema: TableSchema) -> Callable[[Key], Row]:
    """Return a function that makes the row of an erase: the key, and NULL in all other columns."""
    place = {name: i for i, name in enumerate(schema.key)}
    pick = _picker([place.get(name, len(place)) for name in schema.names])
    return lambda key: pick((*key, None))


def _same(old: Row | None, new: Row | None) -> bool:
    """Compare values as SQL and the row hash do: NaN equals NaN, -0 equals 0."""
    return old == new or all(a == b or (a != a and b != b) for a, b in zip(old or (), new or (), strict=True))


def _check_not_null(schema: TableSchema, changes: Iterable[Change]) -> None:
    key = set(schema.key)
    needed = [(i, c.name, c.name in key) for i, c in enumerate(schema.columns) if c.not_null]
    tombstone = _tombstones(schema)
    for change in changes:
        row = tombstone(change.key) if change.new is None else change.new
        for i, name, in_key in needed:
            if row[i] is None and (in_key or change.new is not None):
                raise InvalidArgument(
                    f"Column {name} is NOT NULL and has no value in the row with the key {_show(schema, change.key)}.",
                    "Give the column a value in every row.",
                )


def _show(schema: TableSchema, key: Key) -> str:
    def short(value: object) -> str:
        text = "NULL" if value is None else repr(value) if isinstance(value, (str, bytes)) else str(value)
        return text if len(text) <= 60 else f"{text[:60]}..."

    return (
        "(" + ", ".join(f"{name} = {short(value)}" for name, value in zip(schema.key, key, strict=True)) + ")"
    )


def table_of(schema: TableSchema, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows of canonical values as a table with ``columns``."""
    return pa.table(
        {name: python_to_array(schema[name].type, [row[i] for row in rows]) for i, name in enumerate(columns)}
    )
