"""EXPLAIN of queries: show how a query will find its rows, without reading rows and without a JVM.

EXPLAIN and the query itself use the same functions to decide this: ``lookup_keys``, ``Constraints.key_range``
and ``Store.estimate``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from strandline.model import KeyRange, State, visible
from strandline.names import count
from strandline.sql.evaluate.predicates import predicate
from strandline.sql.evaluate.ranges import Constraints, key_ranges, lookup_keys
from strandline.sql.evaluate.simple_select import SimpleSelect
from strandline.sql.query import Query
from strandline.sql.references import TableRef
from strandline.storage.shards import cuts, ranges, spread
from strandline.tables import read
from strandline.tables.process_query import ProcessPlan, plan_query
from strandline.tables.session_views import views_of
from strandline.tables.snapshot import Reader, TableView, count_known, resolve
from strandline.tables.streaming_select import plain_select
from strandline.types import Type


class Step(NamedTuple):
    """A line of a plan, which is a tree. ``level`` is the depth of the line in the tree."""

    level: int
    what: str
    name: str
    details: str


def explain(reader: Reader, query: Query) -> list[Step]:
    """Return the plan of a query. It is a tree: the lines below a step are the inputs of the step."""
    is_own = query.simple is not None and not views_of(reader, query)
    if query.simple is not None and is_own and reader.runtime.settings.engine != "spark":
        found = _here(reader, query.simple)
        if not isinstance(found, str):
            return found
        if reader.is_fixed and plain_select(reader, query.simple) is not None:
            return list(_explain_streamed(reader, query.simple, found))
    planned = plan_query(reader, query)
    if isinstance(planned, str):
        return list(on_spark(reader, query, planned))
    return [Step(0, "answer", "in the process", "with DuckDB, no JVM"), *explain_inputs(planned)]


def explain_inputs(planned: ProcessPlan) -> Iterator[Step]:
    """Yield the steps that read the tables of a query in the process."""
    for each in planned.inputs:
        yield _table(each.ref, each.view)
        if each.ref.index is not None:
            yield Step(2, "index", each.ref.index, "")
        if each.keys is not None:
            keys = "no key" if not each.keys else count(len(each.keys), "key")
            yield Step(2, "look up", keys, f"columns {', '.join(each.columns)}")
        elif each.state is not None:
            whole = each.view.state if each.ref.index is None else each.state
            details = f"{segments(whole, each.state)}, columns {', '.join(each.columns)}"
            yield Step(2, "scan", _name(each.state.within), details)


def _explain_streamed(reader: Reader, simple: SimpleSelect, why: str) -> Iterator[Step]:
    yield Step(0, "answer", "as a stream", "through the process, no JVM; collect() and df on Spark")
    if simple.limit is not None:
        yield Step(1, "limit", str(simple.limit), "")
    if simple.where is not None:
        yield Step(1, "filter", simple.where.text, "")
    yield _table(simple.table, resolve(reader, simple.table)[1])
    yield Step(2, "scan", "some rows at a time", why)


def on_spark(reader: Reader, query: Query, why: str) -> Iterator[Step]:
    """Yield the plan of a query that Spark answers."""
    yield Step(0, "answer", "on Spark", why)
    views = views_of(reader, query)
    own = [ref for ref in query.tables if ref.name not in views]
    found = [resolve(reader, ref) for ref in own]
    if not views:
        read.check_columns(query, [view for _, view in found])
    for ref, (reader_, view) in zip(own, found, strict=True):
        yield _table(ref, view)
        if ref.index is not None:
            impl = reader_.index(view, view.info.index(ref.index))
            yield Step(2, "index", ref.index, f"all entries: {size(impl.state)}")
        yield Step(2, "scan", "all of it", segments(view.state, view.state))
        yield from _shards(reader_, view)
    for name in sorted(views):
        yield Step(1, "read", name, "a view or a table of the Spark session")
    for file in query.files:
        yield Step(1, "read", file, "a source of Spark's own")
    yield Step(1, "hint", "EXPLAIN FORMATTED", "shows Spark's own plan")


def _here(reader: Reader, simple: SimpleSelect) -> list[Step] | str:
    """Return the steps of a query that Arrow answers in the process, or the reason why it cannot."""
    reader, view = resolve(reader, simple.table)
    if view.increment:
        return "the changes of an incremental backup are read on Spark"
    types: Mapping[str, Type] = {c.name: c.type for c in view.info.schema.columns}
    used = read.columns_used(simple, view.info.schema)
    if used is None:
        return "it names something that is no column of the table"
    where, qualifier = simple.where, simple.table.qualifier
    if where is not None and predicate(where, types, qualifier) is None:
        return "its condition is not one that the process decides"
    if simple.count is not None and where is None and simple.table.index is None:
        known = count_known(view.chain)
        if known is not None:
            answer = Step(0, "answer", "in the process", "from the catalog, no JVM")
            return [answer, Step(1, "count", "rows", f"{known:,}"), _table(simple.table, view)]
    of, inner = view, []
    if simple.table.index is not None:
        of = reader.index(view, view.info.index(simple.table.index))
    constraints = key_ranges(where, types, of.info.schema.key, qualifier)
    _, found = find(reader, of, constraints, 3 if of is not view else 2)
    if isinstance(found, str):
        return found
    if of is not view:
        ref = view.info.index(simple.table.index or "")
        inner.append(Step(2, "index", ref.name, f"{ref.definition.words} on {', '.join(ref.columns)}"))
        mentioned = used | {n for n in types if where is not None and n.lower() in where.names}
        if not mentioned <= set(of.info.schema.names):
            missing = ", ".join(
                n for n in view.info.schema.names if n in mentioned - set(of.info.schema.names)
            )
            found.append(Step(2, "look up", "rows of the table", f"by key, for {missing}"))
    steps = [Step(0, "answer", "in the process", "with Arrow, no JVM")]
    for what, text in (
        ("count", "" if simple.count is None else "rows"),
        ("limit", "" if simple.limit is None else str(simple.limit)),
        ("sort", ", ".join(f"{o.column} DESC" if o.descending else o.column for o in simple.order)),
        ("filter", "" if where is None else where.text),
    ):
        steps += [Step(1, what, text, "")] if text else []
    return [*steps, _table(simple.table, view), *inner, *found]


def find(
    reader: Reader, view: TableView, constraints: Constraints, level: int
) -> tuple[int, list[Step] | str]:
    """Return the maximum number of found rows, and the steps by which the process finds them.

    If the process cannot find them, return the reason instead of the steps.

    Args:
        constraints: constraints on the key columns.
        level: level of the steps.
    """
    if constraints.impossible:
        return 0, [Step(level, "nothing", "", "no key satisfies the condition")]
    key = view.info.schema.key
    keys = lookup_keys(key, constraints)
    if keys is not None:
        most = "about 1 row" if len(keys) == 1 else f"at most {len(keys)} rows"
        return len(keys), [Step(level, "look up", "1 key" if len(keys) == 1 else f"{len(keys)} keys", most)]
    within = constraints.key_range(key)
    part = view.state.narrow(within)
    rows, fits = reader.runtime.store.estimate(part)
    if not fits:
        return rows, (
            f"{rows:,} rows would have to be read here, of {_name(within)}: more than scan_rows or "
            "bulk_bytes allow"
        )
    details = f"at most {rows:,} rows, {segments(view.state, part)}"
    return rows, [Step(level, "scan", _name(within), details)]


def _table(ref: TableRef, view: TableView) -> Step:
    at = f"in the backup {ref.backup[1] or 'taken last'}" if ref.backup else f"at step {view.chain.step}"
    return Step(1, "read", view.info.path, f"{at}, {size(view.state)}")


def size(state: State) -> str:
    """Return as text how many rows, changes and segments a state has."""
    found = visible(state.chain)
    return f"{sum(s.rows for s in found):,} rows and changes in {count(len(found), 'segment')}"


def segments(whole: State, part: State) -> str:
    """Return as text how many segments and bytes of the state ``whole`` are read for its range ``part``."""
    found = visible(part.chain)
    there = count(len(visible(whole.chain)), "segment")
    return f"{len(found)} of {there}, {sum(s.bytes for s in found):,} bytes"


def _shards(reader: Reader, view: TableView) -> Iterator[Step]:
    schema, size = view.info.schema, reader.runtime.settings.shard_bytes
    number = len(ranges(cuts(schema.bounds, spread(view.chain.segments), size, 1)))
    if number > 1:
        yield Step(2, "shards", str(number), f"{len(schema.bounds)} cuts by PARTITION_AT_KEYS")


def _name(within: KeyRange) -> str:
    if not within.is_limited:
        return "all of it"
    ends = (_key(within.lower), _key(within.upper))
    return f"keys {ends[0]} to {ends[1]}" if ends[0] != ends[1] else f"keys that begin with {ends[0]}"


def _key(key: tuple[object, ...] | None) -> str:
    return "any" if key is None else ", ".join(map(str, key))
