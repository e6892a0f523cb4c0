from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import InvalidArgument, PreconditionFailed
from strandline.model import OP, WAS_HI, WAS_LO, Digest, IndexDef, TableSchema
from strandline.storage.arrow.write import (
    Changes,
    apply_write,
    changes_between,
    index_changes,
    log_table,
    once_per_key,
)
from strandline.storage.digest import digest_of, row_hashes, to_signed
from strandline.storage.keys import keys_of
from strandline.storage.rows import Mode
from strandline.types.arrays import python_to_array
from tests.storage import rowwise
from tests.storage.examples import SCHEMAS, schema, values
from tests.storage.rowwise import Change, in_columns, one_by_one, table_of

KVN = schema("k Int64 NOT NULL", "v Utf8", "n Int32", key="k")
OLD = {(1,): (1, "a", 10)}


def written(
    mode: Mode, columns: Sequence[str], rows: Sequence[tuple[Any, ...]], old: Any, table: TableSchema = KVN
) -> Changes:
    """Return what a statement changes in a table whose rows are ``old``."""
    arrays = [
        pa.array([row[i] for row in rows]) if n not in table else column_of(table, n, rows, i)
        for i, n in enumerate(columns)
    ]
    given = once_per_key(table, mode, pa.table(arrays, list(columns)))
    keys = keys_of(table, given)
    at = [i for i, key in enumerate(keys) if key in old]
    return apply_write(
        table, mode, given, np.array(at, np.int64), table_of(table, table.names, [old[keys[i]] for i in at])
    )


def column_of(table: TableSchema, name: str, rows: Sequence[tuple[Any, ...]], place: int) -> pa.Array:
    return python_to_array(table[name].type, [row[place] for row in rows])


def write(
    mode: Mode, columns: str, *rows: tuple[Any, ...], old: Any = OLD, table: TableSchema = KVN
) -> list[Change]:
    return one_by_one(written(mode, columns.split(), rows, old, table))


def test_upsert_sets_the_named_columns_and_keeps_the_others() -> None:
    assert write("UPSERT", "k v", (1, "b"), (2, "c")) == [
        Change((1,), "U", (1, "a", 10), (1, "b", 10)),
        Change((2,), "U", None, (2, "c", None)),
    ]


def test_an_explicit_null_is_not_a_column_left_out() -> None:
    assert write("UPSERT", "k v", (1, None)) == [Change((1,), "U", (1, "a", 10), (1, None, 10))]


def test_replace_makes_the_other_columns_null() -> None:
    assert write("REPLACE", "k v", (1, "b")) == [Change((1,), "R", (1, "a", 10), (1, "b", None))]


def test_several_partial_upserts_of_one_key_all_survive() -> None:
    assert write("UPSERT", "n k", (5, 1), (6, 1), old={}) == [Change((1,), "U", None, (1, None, 6))]
    first = write("UPSERT", "k v", (2, "x"))[0]
    assert first.new is not None
    assert write("UPSERT", "k n", (2, 7), (2, 8), old={(2,): first.new}) == [
        Change((2,), "U", first.new, (2, "x", 8))
    ]


def test_columns_may_come_in_any_order() -> None:
    assert write("UPSERT", "n v k", (7, "z", 3)) == [Change((3,), "U", None, (3, "z", 7))]


def test_insert_refuses_a_key_that_is_there_or_comes_twice() -> None:
    assert write("INSERT", "k v", (2, "c")) == [Change((2,), "U", None, (2, "c", None))]
    with pytest.raises(PreconditionFailed, match=r"\(k = 1\) is already in the table"):
        write("INSERT", "k v", (2, "c"), (1, "c"))
    with pytest.raises(PreconditionFailed, match=r"\(k = 2\) occurs twice"):
        write("INSERT", "k v", (2, "c"), (2, "c"))


def test_update_changes_only_rows_that_are_there() -> None:
    assert write("UPDATE", "k n", (1, 11), (2, 22)) == [Change((1,), "U", (1, "a", 10), (1, "a", 11))]


def test_delete_records_rows_that_were_there_and_delete_on_every_key() -> None:
    there = Change((1,), "E", (1, "a", 10), None)
    assert write("DELETE", "k", (1,), (2,), (1,)) == [there]
    assert write("DELETE ON", "k", (1,), (2,), (1,)) == [there, Change((2,), "E", None, None)]


def test_a_row_without_value_columns_is_a_real_upsert() -> None:
    table = schema("a Int64", "b Utf8", key="b a")
    assert write("UPSERT", "a b", (1, "x"), old={}, table=table) == [Change(("x", 1), "U", None, (1, "x"))]


def test_a_not_null_column_is_named_when_it_lacks_a_value() -> None:
    table = schema("k Int64 NOT NULL", "v Utf8 NOT NULL", "n Int32", key="k")
    with pytest.raises(InvalidArgument, match="column v is NOT NULL"):
        write("UPSERT", "k n", (1, 5), old={}, table=table)
    with pytest.raises(InvalidArgument, match="column v is NOT NULL"):
        write("UPSERT", "k v", (1, None), old=OLD, table=table)
    with pytest.raises(InvalidArgument, match="column v is NOT NULL"):
        write("REPLACE", "k n", (1, 5), old=OLD, table=table)
    with pytest.raises(InvalidArgument, match="column k is NOT NULL"):
        write("DELETE ON", "k", (None,), table=table)
    assert write("UPSERT", "k n", (1, 5), old=OLD, table=table)[0].new == (1, "a", 5)
    assert write("DELETE ON", "k", (1,), table=table)[0].op == "E"


def test_the_key_must_be_named_and_the_columns_must_exist() -> None:
    with pytest.raises(InvalidArgument, match="key column k is missing"):
        write("UPSERT", "v n", ("a", 1))
    with pytest.raises(InvalidArgument, match="no column w"):
        write("UPSERT", "k w", (1, 1))


def test_null_is_the_same_key_as_null() -> None:
    table = schema("a Utf8", "b Int32", key="a")
    assert write("UPSERT", "a b", (None, 1), (None, 2), old={(None,): (None, 0)}, table=table) == [
        Change((None,), "U", (None, 0), (None, 2))
    ]


def test_fresh_means_only_new_keys() -> None:
    assert written("REPLACE", ["k"], [(2,), (3,)], OLD).is_fresh
    assert not written("UPSERT", ["k"], [(1,), (3,)], OLD).is_fresh
    assert not written("DELETE ON", ["k"], [(5,)], OLD).is_fresh
    assert in_columns(KVN, []).is_fresh


def test_rows_and_columns_say_the_same() -> None:
    changes = [
        Change((1,), "U", (1, "a", 10), (1, "b", 10)),
        Change((2,), "E", None, None),
        Change((3,), "R", None, (3, None, 1)),
    ]
    assert one_by_one(in_columns(KVN, changes)) == changes


def test_changes_between_two_states_know_what_came_and_what_went() -> None:
    keys = [python_to_array(KVN["k"].type, [1, 2, 3, 4])]
    old = np.array([2, 0]), table_of(KVN, KVN.names, [(3, "c", 3), (1, "a", 1)])
    new = np.array([1, 0]), table_of(KVN, KVN.names, [(2, "b", 2), (1, "x", 1)])
    assert one_by_one(changes_between(KVN, keys, old, new)) == [
        Change((1,), "U", (1, "a", 1), (1, "x", 1)),
        Change((2,), "U", None, (2, "b", 2)),
        Change((3,), "E", (3, "c", 3), None),
    ]


# --- indexes ----------------------------------------------------------------------------------------------

BY_V = IndexDef(name="by_v", kind="GLOBAL SYNC", columns=("v",), cover=("n",))
PLAIN = IndexDef(name="plain", kind="GLOBAL SYNC", columns=("v",))


def entries(index: IndexDef, old: tuple[Any, ...] | None, new: tuple[Any, ...] | None) -> list[Change]:
    changes = in_columns(KVN, [Change((1,), "E" if new is None else "R", old, new)])
    return one_by_one(index_changes(changes, index.impl_schema(KVN)))


def test_a_new_row_is_a_new_entry_and_a_gone_row_an_erased_one() -> None:
    assert entries(BY_V, None, (1, "a", 5)) == [Change(("a", 1), "U", None, ("a", 1, 5))]
    assert entries(BY_V, (1, "a", 5), None) == [Change(("a", 1), "E", ("a", 1, 5), None)]
    assert entries(BY_V, None, None) == []


def test_a_changed_index_key_erases_the_old_entry_and_makes_a_new_one() -> None:
    assert entries(BY_V, (1, "a", 5), (1, None, 6)) == [
        Change(("a", 1), "E", ("a", 1, 5), None),
        Change((None, 1), "U", None, (None, 1, 6)),
    ]


def test_a_changed_covered_column_is_an_upsert_and_another_column_nothing() -> None:
    assert entries(BY_V, (1, "a", 5), (1, "a", 6)) == [Change(("a", 1), "U", ("a", 1, 5), ("a", 1, 6))]
    assert entries(PLAIN, (1, "a", 5), (1, "a", 6)) == []
    assert entries(PLAIN, None, (1, None, 6)) == [Change((None, 1), "U", None, (None, 1))]
    assert entries(BY_V, (1, "a", None), (1, "a", None)) == []


def test_nan_does_not_differ_from_nan() -> None:
    table = schema("k Int64", "v Utf8", "d Double", key="k")
    index = IndexDef(name="i", kind="GLOBAL SYNC", columns=("v",), cover=("d",))
    same = Change((1,), "U", (1, "a", math.nan), (1, "a", float("nan")))
    other = Change((1,), "U", (1, "a", math.nan), (1, "a", None))
    assert len(index_changes(in_columns(table, [same]), index.impl_schema(table))) == 0
    assert len(index_changes(in_columns(table, [other]), index.impl_schema(table))) == 1


def test_an_index_may_share_columns_with_the_key() -> None:
    table = schema("a Int64", "b Int64", "v Utf8", key="a b")
    index = IndexDef(name="i", kind="GLOBAL SYNC", columns=("v", "b"))
    changes = in_columns(table, [Change((1, 2), "U", None, (1, 2, "x"))])
    assert one_by_one(index_changes(changes, index.impl_schema(table))) == [
        Change(("x", 2, 1), "U", None, ("x", 2, 1))
    ]


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_an_index_that_follows_all_changes_equals_the_projection(data: st.DataObject) -> None:
    table = schema("k Int64", "v Utf8", "w Int8", "n Int32", "o Utf8", key="k")
    index = IndexDef(name="i", kind="GLOBAL SYNC", columns=("w", "v"), cover=("n",))
    impl = index.impl_schema(table)
    state: dict[Any, Any] = {}
    index_state: dict[Any, Any] = {}
    for _ in range(data.draw(st.integers(1, 5))):
        mode: Mode = data.draw(st.sampled_from(["UPSERT", "REPLACE", "UPDATE", "DELETE ON"]))
        named = (
            []
            if mode == "DELETE ON"
            else data.draw(st.lists(st.sampled_from(["v", "w", "n", "o"]), unique=True))
        )
        small = {
            "v": st.sampled_from(["a", "b"]),
            "w": st.integers(0, 1),
            "n": st.integers(0, 1),
            "o": st.just("x"),
        }
        row = st.tuples(st.integers(0, 4), *(st.none() | small[name] for name in named))
        changes = written(mode, ["k", *named], data.draw(st.lists(row, max_size=5)), state, table)
        for target, made in ((state, changes), (index_state, index_changes(changes, impl))):
            assert len({change.key for change in one_by_one(made)}) == len(made)
            for change in one_by_one(made):
                assert change.old == target.get(change.key)
                target.pop(change.key, None)
                if change.new is not None:
                    target[change.key] = change.new
    assert index_state == {(w, v, k): (w, v, k, n) for k, v, w, n, _ in state.values()}


# --- the log ----------------------------------------------------------------------------------------------


def digest(table: TableSchema, rows: list[tuple[Any, ...]]) -> Digest:
    arrays = {c.name: python_to_array(c.type, [row[i] for row in rows]) for i, c in enumerate(table.columns)}
    return digest_of(*row_hashes(table, arrays))


def test_a_log_holds_images_operations_and_the_hashes_of_what_was() -> None:
    changes = [
        Change((1,), "U", (1, "a", 10), (1, "b", 10)),
        Change((2,), "E", None, None),
        Change((3,), "E", (3, "c", None), None),
        Change((4,), "R", None, (4, None, None)),
    ]
    table, delta = log_table(in_columns(KVN, changes))
    assert table.select(["k", "v", "n", OP]).to_pylist() == [
        {"k": 1, "v": "b", "n": 10, OP: "U"},
        {"k": 2, "v": None, "n": None, OP: "E"},
        {"k": 3, "v": None, "n": None, OP: "E"},
        {"k": 4, "v": None, "n": None, OP: "R"},
    ]
    arrays = {
        c.name: python_to_array(c.type, [r[i] for r in [(1, "a", 10), (3, "c", None)]])
        for i, c in enumerate(KVN.columns)
    }
    high, low = row_hashes(KVN, arrays)
    assert table.column(WAS_HI).to_pylist() == [to_signed(high)[0], None, to_signed(high)[1], None]
    assert table.column(WAS_LO).to_pylist() == [to_signed(low)[0], None, to_signed(low)[1], None]
    assert delta == digest(KVN, [(1, "b", 10), (4, None, None)]) - digest(KVN, [(1, "a", 10), (3, "c", None)])
    assert delta.rows == 0


def test_an_empty_log_changes_nothing() -> None:
    table, delta = log_table(in_columns(KVN, []))
    assert (table.num_rows, delta) == (0, Digest())


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_the_digest_delta_leads_from_the_old_state_to_the_new(data: st.DataObject) -> None:
    table = data.draw(st.sampled_from(SCHEMAS))
    keys = st.tuples(*(values(c.type) for c in table.key_columns))
    changes = []
    for key in data.draw(st.lists(keys, unique=True, max_size=8)):
        parts = dict(zip(table.key, key, strict=True))
        row = st.tuples(
            *(
                st.just(parts[c.name]) if c.name in parts else st.none() | values(c.type)
                for c in table.columns
            )
        )
        old, new = data.draw(st.none() | row), data.draw(st.none() | row)
        changes.append(Change(key, "E" if new is None else "U", old, new))
    _, delta = log_table(in_columns(table, changes))
    before = [change.old for change in changes if change.old is not None]
    after = [change.new for change in changes if change.new is not None]
    assert digest(table, before) + delta == digest(table, after)


@settings(deadline=None)
@given(st.data())
def test_columns_give_what_rows_one_by_one_give(data: st.DataObject) -> None:
    table = data.draw(st.sampled_from(SCHEMAS))
    key = st.tuples(
        *(values(c.type) if c.not_null else st.none() | values(c.type) for c in table.key_columns)
    )
    pool = data.draw(st.lists(key, min_size=1, max_size=6, unique=True))
    whole = [(*k, *(data.draw(st.none() | values(c.type)) for c in table.value_columns)) for k in pool]
    order = [[*table.key, *(c.name for c in table.value_columns)].index(name) for name in table.names]
    state = {
        k: tuple(row[i] for i in order)
        for k, row in zip(pool, whole, strict=True)
        if data.draw(st.booleans())
    }
    mode: Mode = data.draw(st.sampled_from(["UPSERT", "REPLACE", "INSERT", "UPDATE", "DELETE", "DELETE ON"]))
    may_name = [] if mode.startswith("DELETE") else [c.name for c in table.value_columns]
    named = data.draw(st.lists(st.sampled_from(may_name), unique=True)) if may_name else []
    rows = [
        (*data.draw(st.sampled_from(pool)), *(data.draw(st.none() | values(table[n].type)) for n in named))
        for _ in range(data.draw(st.integers(0, 6)))
    ]
    columns = [*table.key, *named]

    def shown(of: TableSchema, changes: list[Change]) -> list[str]:
        # Through Arrow, because equal times may have different representations.
        return sorted(map(repr, one_by_one(in_columns(of, changes))))

    def outcome(work: Callable[[], list[Change]]) -> object:
        try:
            return shown(table, work())
        except (InvalidArgument, PreconditionFailed) as error:
            return type(error)

    expected = outcome(lambda: rowwise.apply_write(table, mode, columns, rows, state))
    assert outcome(lambda: one_by_one(written(mode, columns, rows, state, table))) == expected
    if isinstance(expected, list):
        orderable = [c.name for c in table.value_columns if c.type.orderable]
        on = data.draw(
            st.lists(st.sampled_from([*orderable, *table.key]), min_size=1, max_size=2, unique=True)
        )
        cover = [c.name for c in table.value_columns if c.name not in on and data.draw(st.booleans())]
        index = IndexDef(name="i", kind="GLOBAL SYNC", columns=tuple(on), cover=tuple(cover))
        impl = index.impl_schema(table)
        expected = shown(
            impl,
            rowwise.index_changes(table, index, impl, rowwise.apply_write(table, mode, columns, rows, state)),
        )
        assert (
            shown(impl, one_by_one(index_changes(written(mode, columns, rows, state, table), impl)))
            == expected
        )
