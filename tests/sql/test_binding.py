"""Markers, and the values bound to them."""

from __future__ import annotations

import pickle
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from strandline.errors import InvalidArgument, StrandlineError, SyntaxFault
from strandline.sql import statements as st
from strandline.sql.binding import bind_value
from strandline.sql.evaluate.literals import literal
from strandline.sql.parser import parse
from strandline.sql.query import parse_query
from strandline.sql.syntax import parse_expression

UTC = timezone.utc
VALUES = [
    None,
    True,
    5,
    2**64 - 1,
    -(2**63),
    0.1,
    Decimal("1.50"),
    "it's ? :x -- /*",
    b"\x00\xff",
    date(1024, 1, 2),
    datetime(1024, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
]


def values_of(text: str, params: Any) -> list[Any]:
    """Return the values of a write, row by row."""
    found = []
    for statement in parse(text, params):
        assert isinstance(statement, st.Write) and isinstance(statement.source, st.Values)
        found += [literal(value) for row in statement.source.rows for value in row]
    return found


@pytest.mark.parametrize("value", VALUES)
def test_a_bound_value_is_a_constant(value: Any) -> None:
    for text, params in (("?", [value]), (":v", {"v": value}), ("$v", {"v": value}), ("(?)", (value,))):
        assert literal(parse_expression(text, params)) == value


def test_values_go_through_all_statements_of_a_text() -> None:
    text = "UPSERT INTO t (k, v) VALUES (?, ?), (-?, '?'); /* ? */ UPSERT INTO u (k) VALUES (?) -- ?"
    assert values_of(text, [1, "a", 2, 3]) == [1, "a", -2, "?", 3]
    text = "UPSERT INTO t (k, v) VALUES (:k, :v), (:k, ':v')"
    assert values_of(text, {"v": "a", "k": 1}) == [1, "a", 1, ":v"]


def test_the_text_for_spark_has_names_and_no_values() -> None:
    query = parse_query("SELECT upper(?) FROM t WHERE d = ? LIMIT ?", ["x'; DROP", Decimal("1.5"), 3])
    assert query.args == {"p13": "x'; DROP", "p33": "1.5", "p41": 3}
    assert query.render(["{t0}"]) == (
        "SELECT upper(:p13) FROM {t0} AS `t` WHERE d = CAST(:p33 AS DECIMAL(2,1)) LIMIT :p41"
    )


def test_what_is_bound_behind_a_table_is_not_told_to_spark() -> None:
    query = parse_query("SELECT upper(v) FROM t VERSION AS OF ? WHERE n > ?", [7, 1])
    assert [ref.version for ref in query.tables] == [7]
    assert list(query.args.values()) == [1]
    query = parse_query("SELECT v FROM t TIMESTAMP AS OF :at", {"at": datetime(2026, 1, 1, tzinfo=UTC)})
    assert [ref.timestamp for ref in query.tables] == [datetime(2026, 1, 1, tzinfo=UTC)]


def test_markers_stand_wherever_a_value_stands() -> None:
    (restore,) = parse("RESTORE c AT TIMESTAMP ? INTO ? WITH (COPIES = ?)", [datetime(2026, 1, 1), "/x", 2])
    assert restore == st.Restore(
        "c", at_timestamp=datetime(2026, 1, 1, tzinfo=UTC), into="/x", settings=(("COPIES", 2),)
    )
    (restore,) = parse("RESTORE c AT :backup WITH (REPLACE = :r)", {"backup": "b", "r": True})
    assert restore == st.Restore("c", "b", settings=(("REPLACE", True),))
    (prune,) = parse("PRUNE c KEEP LAST ? FULL WITHIN ?", [3, "30d"])
    assert prune == st.Prune("c", st.Keep(last=3, within="30d"))
    (made,) = parse("CREATE TABLE t (k Int64, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (?, ?))", [1, 2])
    assert isinstance(made, st.CreateTable) and made.partition_at_keys == ((1,), (2,))
    (select,) = parse("SELECT k FROM t WHERE k IN (?, ?) LIMIT ?", [1, 2, 5])
    assert isinstance(select, st.Select) and select.query.simple is not None
    assert select.query.simple.limit == 5


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("SELECT ?", None, "column 8: the marker [?] has no value"),
        ("SELECT :a", None, "the marker :a has no value"),
        ("SELECT :a", {"b": 1}, "the marker :a has no value"),
        ("SELECT $a", {}, "the marker [$]a has no value"),
        ("SELECT ?, ?", [1], "2 markers, and 1 value to"),
        ("SELECT ?", [1, 2], "1 marker, and 2 values to"),
        ("SELECT 1", [1], "0 markers"),
        ("SELECT :a", {"a": 1, "b": 2}, "a value is given for 'b'"),
        ("SELECT :a, ?", {"a": 1}, "mixed"),
        ("SELECT :a, ?", [1, 2], "mixed"),
        ("SELECT :a", [1], "need a dict"),
        ("SELECT ?", {"a": 1}, "has no name for a dict"),
        ("SELECT ?", "x", "a list or a dict"),
        ("SELECT ?", 5, "a list or a dict"),
        ("SELECT * FROM ?", ["t"], "expected a table name"),
        ("SELECT ?", [[1]], "value 1 is a list, which cannot be bound"),
        ("SELECT :a", {"a": {}}, ":a is a dict"),
        ("SELECT ?", [10**38], "38 digits"),
        ("SELECT ?", [Decimal("NaN")], "38 digits"),
        ("SELECT ?", [Decimal("1E+40")], "38 digits"),
    ],
)
def test_values_and_markers_must_fit(text: str, params: Any, message: str) -> None:
    with pytest.raises((SyntaxFault, InvalidArgument), match=message) as caught:
        parse(text, params)
    assert isinstance(caught.value, StrandlineError) and caught.value.hint


def test_a_colon_behind_a_value_is_spark_s_own() -> None:
    for text in ("SELECT v:name FROM t", "SELECT f(v):name FROM t", "SELECT k::int FROM t"):
        try:
            parse(text)
        except SyntaxFault as fault:
            assert "marker" not in fault.message


def test_values_are_brought_into_their_plain_form() -> None:
    given = [bytearray(b"x"), np.int64(5), np.datetime64("2026-01-01"), datetime(2026, 1, 1)]
    assert [bind_value(v, "v") for v in given] == [
        b"x",
        5,
        date(2026, 1, 1),
        datetime(2026, 1, 1, tzinfo=UTC),
    ]
    east = timezone(timedelta(hours=2))
    assert bind_value(datetime(2026, 1, 1, 2, tzinfo=east), "v") == datetime(2026, 1, 1, tzinfo=UTC)


def test_an_expression_travels_with_its_values() -> None:
    one = parse_expression("k = ? AND v > ?", [1, "a"])
    assert one != parse_expression("k = ? AND v > ?", [1, "b"])
    assert one == parse_expression("k = ? AND v > ?", [1, "a"])
    again = pickle.loads(pickle.dumps(one))
    assert sorted(map(str, again.params.values())) == ["1", "a"]
