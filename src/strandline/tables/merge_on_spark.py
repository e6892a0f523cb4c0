"""Run the plan of a MERGE on Spark.

1. One query joins the source with the table, and chooses the action for each pair of rows. Its result is kept
   on the executors.
2. The result is checked: a row of the table must not occur in two pairs.
3. The rows of each action are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from strandline.errors import PreconditionFailed, Unsupported
from strandline.model import EVERYWHERE, Key, KeyRange
from strandline.sql.constants import cast_constant
from strandline.sql.query import parse_query
from strandline.sql.tokens import quote
from strandline.tables.merge_plan import MergePlan
from strandline.tables.transaction import Transaction
from strandline.types import Type
from strandline.types.arrays import column_to_python
from strandline.types.inference import type_of_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["merge_on_spark"]

_ACTION, _IN_SOURCE, _IN_TABLE = "__strandline_action", "__strandline_source", "__strandline_table"


def merge_on_spark(
    tx: Transaction, plan: MergePlan, source: DataFrame, repeated: Callable[[Key], PreconditionFailed]
) -> None:
    """Run a MERGE plan on Spark.

    Args:
        source: the rows of the source. Its columns have the names in the plan.
        repeated: builds the error for a row of the table that several rows of the source match.
    """
    queries = tx.runtime.store.queries
    with queries.keep(source) as rows, queries.keep(_decide(tx, plan, rows)) as decided:
        _check_once(tx, plan, decided, repeated)
        for number in plan.in_order(range(len(plan.actions))):
            _write(tx, plan, decided, number)


def _run(tx: Transaction, text: str, frames: Mapping[str, DataFrame], params: Mapping[str, Any]) -> DataFrame:
    """Run a query whose table names are keys of ``frames``."""
    query = parse_query(text, params)
    if unknown := [ref.name for ref in query.tables if ref.name not in frames]:
        raise Unsupported(
            f"another table in the actions of MERGE ({unknown[0]}) is not supported",
            "Join it in USING (SELECT ...).",
        )
    rendered = query.render([f"{{{ref.name}}}" for ref in query.tables])
    return tx.runtime.store.queries.sql(rendered, frames, query.args)


def _decide(tx: Transaction, plan: MergePlan, source: DataFrame) -> DataFrame:
    """Return the pairs that an action applies to: number of the action, key, and values of all actions."""
    schema = plan.view.info.schema
    kinds = {action.when for action in plan.actions}
    join = "FULL OUTER" if plan.by_source else "LEFT OUTER" if "NOT MATCHED" in kinds else "INNER"
    target, own = quote(plan.target.alias), quote(plan.source.alias)
    params = dict(plan.on.params)
    items = [f"{_action_number(plan, params)} AS {_ACTION}"]
    items += [f"{target}.{quote(name)} AS {_key(i)}" for i, name in enumerate(schema.key)]
    for number, action in enumerate(plan.actions):
        for i, value in enumerate(action.values):
            items.append(f"CASE WHEN {_ACTION} = {number} THEN {value.text} END AS {_value(number, i)}")
            params |= value.params
    text = (
        f"SELECT * FROM (SELECT {', '.join(items)} "
        f"FROM (SELECT *, true AS {_IN_SOURCE} FROM source) AS {own} "
        f"{join} JOIN (SELECT *, true AS {_IN_TABLE} FROM target) AS {target} "
        f"ON ({plan.on.text})) WHERE {_ACTION} IS NOT NULL"
    )
    return _run(tx, text, {"source": source, "target": _target_frame(tx, plan, source)}, params)


def _action_number(plan: MergePlan, params: dict[str, Any]) -> str:
    """Return an SQL expression that computes which action applies to a pair of rows.

    The value of the expression is the action's number; NULL: no action applies.

    Args:
        params: the parameters of the conditions are added to this dict.
    """
    state = {
        "MATCHED": f"{_IN_SOURCE} AND {_IN_TABLE}",
        "NOT MATCHED": f"{_IN_TABLE} IS NULL",
        "NOT MATCHED BY SOURCE": f"{_IN_SOURCE} IS NULL",
    }
    cases = []
    for number, action in enumerate(plan.actions):
        condition = ""
        if action.condition is not None:
            condition = f" AND ({action.condition.text})"
            params |= action.condition.params
        cases.append(f"WHEN {state[action.when]}{condition} THEN {number}")
    return f"CASE {' '.join(cases)} END"


def _key(i: int) -> str:
    return f"__strandline_k{i}"


def _value(number: int, i: int) -> str:
    return f"__strandline_v{number}_{i}"


def _check_once(
    tx: Transaction, plan: MergePlan, decided: DataFrame, repeated: Callable[[Key], PreconditionFailed]
) -> None:
    """Raise ``repeated(key)`` if several rows of the source match the same row of the table.

    Only the rows that a WHEN MATCHED action applies to are checked.
    """
    matched = [str(i) for i, action in enumerate(plan.actions) if action.when == "MATCHED"]
    if not matched or plan.may_repeat:
        return
    keys = ", ".join(_key(i) for i in range(len(plan.view.info.schema.key)))
    text = (
        f"SELECT {keys} FROM decided WHERE {_ACTION} IN ({', '.join(matched)}) "
        f"GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"
    )
    found = tx.runtime.store.queries.values(_run(tx, text, {"decided": decided}, {}))
    for row in found.to_pylist():
        raise repeated(tuple(row.values()))


def _write(tx: Transaction, plan: MergePlan, decided: DataFrame, number: int) -> None:
    action, schema = plan.actions[number], plan.view.info.schema
    items = [_value(number, i) for i in range(len(action.columns))]
    columns = list(action.columns)
    if action.mode != "INSERT":
        items = [*(_key(i) for i in range(len(schema.key))), *items]
        columns = [*schema.key, *columns]
    text = f"SELECT {', '.join(items)} FROM decided WHERE {_ACTION} = {number}"
    frame = _run(tx, text, {"decided": decided}, {})
    tx.write(tx.writable(plan.view.info.path), action.mode, frame.toDF(*columns))


# --- the rows of the table --------------------------------------------------------------------------------


def _target_frame(tx: Transaction, plan: MergePlan, source: DataFrame) -> DataFrame:
    """Return the rows of the table that may match: those with the source's keys, a key range, or all rows."""
    view, store = plan.view, tx.runtime.store
    keys = None if plan.by_source else _source_keys(plan, source)
    if keys is not None:
        found = store.queries.look_up(view.state, _run(tx, keys, {"source": source}, {}))
        if found is not None:
            tx.read_keys(view, found[0])
            return store.queries.declare_types(found[1], view.info.schema)
    tx.read_whole(view)
    state = view.state if keys is None else view.state.narrow(_range(tx, plan, keys, source))
    return store.queries.declare_types(store.queries.frame(state), view.info.schema)


def _range(tx: Transaction, plan: MergePlan, keys: str, source: DataFrame) -> KeyRange:
    """Return the range from the smallest to the largest value of the first key column in ``keys``."""
    type_ = plan.view.info.schema.key_columns[0].type
    text = f"SELECT min({_key(0)}) AS first, max({_key(0)}) AS last FROM ({keys})"
    found = tx.runtime.store.queries.values(_run(tx, text, {"source": source}, {}))
    first, last = (column_to_python(type_, column.cast(type_.arrow))[0] for column in found.columns)
    return EVERYWHERE if first is None else KeyRange((first,), (last,), closed=True)


def _source_keys(plan: MergePlan, source: DataFrame) -> str | None:
    """Return a query for the keys that rows of the source match; None if ON does not define them."""
    if not plan.has_key:
        return None
    kinds = {field.name: field.dataType.simpleString() for field in source.schema.fields}
    items = []
    for name in plan.view.info.schema.key:
        type_, value = plan.view.info.schema[name].type, plan.keys[name]
        if value.column is None:
            items.append(cast_constant(type_, value.value))
        elif _compares_as_itself(type_, type_of_spark(kinds[value.column])):
            # try_cast gives NULL for a value that the key's type cannot hold: such a value matches no key.
            items.append(f"try_cast({quote(value.column)} AS {type_.spark})")
        else:
            return None
    names = [_key(i) for i in range(len(items))]
    listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
    there = " AND ".join(f"{name} IS NOT NULL" for name in names)
    return f"SELECT DISTINCT * FROM (SELECT {listed} FROM source) WHERE {there}"


def _compares_as_itself(type_: Type, given: Type | None) -> bool:
    """Return True if Spark compares a key and a value of type ``given`` without a cast to a third type."""
    if given is None:
        return False
    if type_.kind == "int":
        return given.kind == "int" or (given.kind == "decimal" and given.scale == 0)
    is_same = given.kind == type_.kind and type_.kind in ("bool", "text", "bytes", "date", "time")
    return is_same or (type_.kind == "decimal" and type_ == given)
