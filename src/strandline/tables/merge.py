"""MERGE: change the rows of a table by the rows of a source, in one commit with its indexes.

1. Read the source once, and plan the statement with the columns of the source.
2. For each row of the source find the rows of the table that match: by key if ON compares the whole key.
3. Choose an action for each pair of matching rows and for each row of the source without a match. With NOT
   MATCHED BY SOURCE, also choose one for each row of the table without a match. The first action whose
   condition is true is chosen. A condition that is NULL is not true.
4. Write the rows of each action: deletes first, then updates, then inserts.

Steps 2 to 4 run in the process if there are few rows and it can evaluate all expressions, otherwise on Spark.
Both ways give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from strandline.errors import InvalidArgument, PreconditionFailed
from strandline.model import Key
from strandline.sql import statements as st
from strandline.sql.evaluate.literals import NotConstant, literal
from strandline.storage.keys import key_text
from strandline.storage.rows import Row
from strandline.tables import read
from strandline.tables.merge_on_spark import merge_on_spark
from strandline.tables.merge_plan import MergePlan, plan_merge
from strandline.tables.transaction import Transaction
from strandline.tables.write import write_rows
from strandline.types import Type, coerce, parse_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["constant_rows", "merge", "repeated"]

MAX_PAIRS = 100_000
"""Maximum number of pairs of rows that are compared in the process if ON does not compare the key."""


@dataclass(frozen=True)
class SourceRows:
    """The rows of USING.

    Attributes:
        names: names of the columns.
        frame: creates a DataFrame of the rows.
        types: types of the columns, if ``rows`` has all rows in memory. None: only ``frame`` has the rows.
        rows: the rows in memory.
    """

    names: Sequence[str]
    frame: Callable[[], DataFrame]
    types: Sequence[Type] | None = None
    rows: Sequence[Row] = ()


def merge(tx: Transaction, statement: st.Merge) -> None:
    """Execute a MERGE inside the transaction."""
    view = tx.writable(statement.path)
    source = _read_source(tx, statement)
    plan = plan_merge(view, statement, source.names, source.types)
    if source.types is None or not _merge_here(tx, plan, source.rows):
        frame = source.frame().toDF(*source.names)
        merge_on_spark(tx, plan, frame, lambda key: repeated(plan, key))


def _read_source(tx: Transaction, statement: st.Merge) -> SourceRows:
    query, names = statement.source, statement.source_columns
    constants = None if statement.values is None else constant_rows(statement.values)
    if constants is not None:
        types, rows = constants
        found = SourceRows(names or (), lambda: read.query_frame(tx, query), types, rows)
        width = len(types)
    else:
        selected = read.select(tx, query)
        if selected.rows is not None and selected.types is not None:
            found = SourceRows(selected.columns, selected.frame, selected.types, selected.rows)
        else:
            found = _rows_of_duckdb(tx, selected) or _rows_of_spark(selected)
        width = len(found.names)
    if names is None:
        return found
    if len(names) != width:
        raise InvalidArgument(
            f"the source has {width} columns, and {len(names)} names are given for them",
            "Name each column once.",
        )
    return SourceRows(names, found.frame, found.types, found.rows)


def _rows_of_duckdb(tx: Transaction, selected: read.Selected) -> SourceRows | None:
    """Return the rows that DuckDB found; None if Spark found them, or if they are too many."""
    found = selected.found
    if found is None or (types := found.column_types) is None:
        return None
    if not tx.runtime.store.budget.fits(rows=found.physical.num_rows, bytes=found.physical.nbytes):
        return None
    rows = [
        tuple(coerce(type_, value, "USING") for type_, value in zip(types, row, strict=True))
        for row in found.values()
    ]
    return SourceRows(found.names, selected.frame, types, rows)


def _rows_of_spark(selected: read.Selected) -> SourceRows:
    frame = selected.frame()
    return SourceRows(frame.columns, lambda: frame)


def constant_rows(values: st.Values) -> tuple[list[Type], list[Row]] | None:
    """Return the column types and the rows of VALUES of constants. The types are those that Spark gives them.

    Return None if a value is no constant, or if its type needs Spark.
    """
    rows: list[tuple[Any, ...]] = []
    for row in values.rows:
        if any(token.text[-1:].isalpha() and token.text[:1].isdigit() for e in row for token in e.tokens):
            return None  # A number with a suffix for its type, such as 1L.
        try:
            rows.append(tuple(literal(expression) for expression in row))
        except NotConstant:
            return None
    types = [_type_of(column) for column in zip(*rows, strict=True)]
    known = [type_ for type_ in types if type_ is not None]
    if len(known) < len(types):
        return None
    return known, [
        tuple(coerce(type_, value, "USING") for type_, value in zip(known, row, strict=True)) for row in rows
    ]


def _type_of(values: Iterable[Any]) -> Type | None:
    """Return the type of a column of constants; None if all are NULL, or if their types differ."""
    found = [value for value in values if value is not None]
    kinds = {type(value) for value in found}
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    if kind is int:
        is_small = all(-(2**31) <= value < 2**31 for value in found)
        return parse_type("Int32" if is_small else "Int64")
    if kind is Decimal:
        return _decimal_type(found)
    name = _TYPES.get(kind)
    return None if name is None else parse_type(name)


_TYPES = {
    bool: "Bool",
    str: "Utf8",
    bytes: "String",
    float: "Double",
    date: "Date",
    datetime: "Timestamp",
}


def _decimal_type(values: Sequence[Decimal]) -> Type | None:
    parts = [value.as_tuple() for value in values]
    scale = max(max(-int(part.exponent), 0) for part in parts)
    whole = max(max(len(part.digits) + int(part.exponent), 0) for part in parts)
    return parse_type(f"Decimal({max(whole + scale, 1)},{scale})") if whole + scale <= 38 else None


def repeated(plan: MergePlan, key: Key) -> PreconditionFailed:
    """Build the error for a row of the table that several rows of the source match."""
    schema = plan.view.info.schema
    return PreconditionFailed(
        f"several rows of the source match the row of {plan.view.info.path} with the key "
        f"{key_text(schema.key, key)}",
        "Use a source with one row for each row of the table, for example with GROUP BY.",
    )


# --- in this process --------------------------------------------------------------------------------------


def _merge_here(tx: Transaction, plan: MergePlan, rows: Sequence[Row]) -> bool:
    """Run the plan in this process and return True; return False without a change if this needs Spark."""
    view, store = plan.view, tx.runtime.store
    if not plan.is_here or not store.writes_here(view.state, len(rows)):
        return False
    keys = [_key_of(plan, row) for row in rows]
    targets = _find_targets(tx, plan, keys)
    if targets is None:
        return False
    chosen = _choose(plan, zip(keys, rows, strict=True), targets)
    for number in plan.in_order(chosen):
        action = plan.actions[number]
        columns = action.columns if action.mode == "INSERT" else (*view.info.schema.key, *action.columns)
        write_rows(tx, tx.writable(view.info.path), action.mode, columns, chosen[number])
    return True


def _key_of(plan: MergePlan, row: Row) -> Key | None:
    """Return the key that a row of the source matches; None if it matches none, or ON does not define it."""
    if not plan.has_key:
        return None
    values = dict(zip(plan.source.names, row, strict=True))
    found = [plan.keys[name] for name in plan.view.info.schema.key]
    key = tuple(each.value if each.column is None else values[each.column] for each in found)
    return None if None in key else key


def _find_targets(tx: Transaction, plan: MergePlan, keys: Sequence[Key | None]) -> dict[Key, Row] | None:
    """Return the rows of the table that may match, by key; None if there are too many for this process."""
    view = plan.view
    if plan.has_key and not plan.by_source:
        wanted = list(dict.fromkeys(key for key in keys if key is not None))
        tx.read_keys(view, wanted)
        return read.lookup(tx, view, wanted)
    rows = read.matching_rows(tx, view, plan.target.alias, None)
    if rows is None or (not plan.has_key and len(rows) * len(keys) > MAX_PAIRS):
        return None
    at = [view.info.schema.names.index(name) for name in view.info.schema.key]
    return {tuple(row[i] for i in at): row for row in rows}


def _choose(
    plan: MergePlan, sources: Iterable[tuple[Key | None, Row]], targets: dict[Key, Row]
) -> dict[int, list[Row]]:
    """Choose an action for each pair of rows; return the rows to write by number of the action.

    Args:
        sources: the rows of the source, each after the key that it matches.
        targets: rows of the table, by key.
    """
    assert plan.test is not None
    chosen: dict[int, list[Row]] = {}
    matched: set[Key] = set()
    changed: set[Key] = set()
    for wanted, row in sources:
        own = {plan.source.marked(n): v for n, v in zip(plan.source.names, row, strict=True)}
        found = False
        for key, pair in _pairs(plan, wanted, own, targets):
            found = True
            matched.add(key)
            number = plan.first("MATCHED", pair)
            if number is None:
                continue
            if key in changed:
                if plan.may_repeat:
                    continue
                raise repeated(plan, key)
            changed.add(key)
            chosen.setdefault(number, []).append((*key, *_values(plan, number, pair)))
        number = None if found else plan.first("NOT MATCHED", own)
        if number is not None:
            chosen.setdefault(number, []).append(_values(plan, number, own))
    if plan.by_source:
        for key, row in targets.items():
            fields = _target_fields(plan, row)
            number = None if key in matched else plan.first("NOT MATCHED BY SOURCE", fields)
            if number is not None:
                chosen.setdefault(number, []).append((*key, *_values(plan, number, fields)))
    return chosen


def _pairs(
    plan: MergePlan, wanted: Key | None, own: dict[str, Any], targets: dict[Key, Row]
) -> Iterator[tuple[Key, dict[str, Any]]]:
    """Yield the key of each row of the table that a row of the source matches, and the values of both rows.

    Args:
        wanted: the key that the row of the source matches. None: it matches no key, or ON does not define it.
        own: the row of the source.
        targets: rows of the table, by key.
    """
    assert plan.test is not None
    if plan.has_key:
        candidates = [wanted] if wanted is not None and wanted in targets else []
    else:
        candidates = list(targets)
    for key in candidates:
        pair = {**_target_fields(plan, targets[key]), **own}
        if plan.test(pair) is True:
            yield key, pair


def _target_fields(plan: MergePlan, row: Row) -> dict[str, Any]:
    return {plan.target.marked(n): v for n, v in zip(plan.target.names, row, strict=True)}


def _values(plan: MergePlan, number: int, row: dict[str, Any]) -> Row:
    return tuple(value.compute(row) for value in plan.actions[number].values if value.compute is not None)
