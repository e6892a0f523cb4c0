"""Times are read back unchanged in every time zone of the machine and of the Spark session."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline import Database
from strandline.errors import InvalidArgument, PreconditionFailed
from tests.tables.examples import ARROW, SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = timezone.utc
SESSION_ZONE = (
    "Australia/Lord_Howe"  # Its clocks go back by half an hour when New York's go forward by an hour.
)
CORNERS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1883, 11, 18, 16, 59, 59, 999999, tzinfo=UTC),  # The introduction of standard time in New York.
    datetime(2024, 3, 10, 6, 59, 59, 999999, tzinfo=UTC),  # Before and after the hour that New York skips.
    datetime(2024, 3, 10, 7, tzinfo=UTC),
    datetime(2024, 11, 3, 5, 30, tzinfo=UTC),  # Half past one in New York.
    datetime(2024, 11, 3, 6, 30, tzinfo=UTC),  # and again
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]
TIMES = st.sampled_from(CORNERS) | st.datetimes(timezones=st.just(UTC)).map(lambda t: t.replace(fold=0))


@pytest.fixture
def abroad(spark: SparkSession) -> SparkSession:
    """A session of the user in another time zone."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", SESSION_ZONE)
    return session


def exactly(found: Any, expected: Any) -> bool:
    """Return values with types and zones: an aware time equals times in other zones."""
    return repr(found) == repr(expected)


@pytest.mark.parametrize("way", [ARROW, SPARK], ids=["here", "on Spark"])
def test_times_leave_and_come_back_as_the_same_instants(
    connect: Callable[..., Database], abroad: SparkSession, zone: str, way: Any
) -> None:
    db = connect(spark=abroad, settings=way)
    db.sql("CREATE TABLE t (k Int32, t Timestamp, PRIMARY KEY (k))")

    @settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(TIMES, min_size=30, max_size=30))
    def law(drawn: list[datetime]) -> None:
        expected = list(enumerate([None, *CORNERS, *drawn]))
        db.table("t").upsert([{"k": k, "t": t} for k, t in expected])
        digest = db.describe("t")["digest"]
        result = db.sql("SELECT k, t FROM t ORDER BY k")
        assert result.is_here == (way is ARROW)
        for rows in (result.rows(), [tuple(row) for row in result.collect()], list(result)):
            assert exactly(rows, expected)
        assert exactly(result.rows(3), expected[:3])
        assert exactly(db.table("t").get(2), {"k": 2, "t": CORNERS[1]})
        db.table("t").upsert(result.collect())
        assert db.describe("t")["digest"] == digest

    law()


def test_times_inside_other_values_leave_as_utc_and_those_without_a_zone_stay_without_one(
    connect: Callable[..., Database], abroad: SparkSession, zone: str
) -> None:
    db = connect(spark=abroad)
    first, second = datetime(2024, 11, 3, 5, 30, tzinfo=UTC), datetime(2024, 11, 3, 6, 30, tzinfo=UTC)
    db.sql("CREATE TABLE t (k Int32, t Timestamp, PRIMARY KEY (k))")
    db.table("t").upsert([{"k": 1, "t": first}, {"k": 2, "t": second}, {"k": 3, "t": None}])
    (row,) = db.sql(
        "SELECT array_sort(collect_list(t)) AS l, named_struct('t', max(t), 'n', TIMESTAMP_NTZ '2024-11-03 01:30:00', 's', 'x') AS s,"
        " map(min(t), array(max(t), NULL)) AS m, TIMESTAMP_NTZ '2024-01-01 00:00:00' AS n, max(t) AS t, min(t) AS t, array(1) AS i"
        " FROM t"
    ).collect()
    naive = datetime(2024, 11, 3, 1, 30)
    assert exactly(row.l, [first, second])
    assert exactly(row.s.asDict(), {"t": second, "n": naive, "s": "x"})
    assert exactly(row.m, {first: [second, None]})
    assert exactly(tuple(row)[3:], (datetime(2024, 1, 1), second, first, [1]))
    assert exactly(db.sql("SELECT array(t) AS l FROM t WHERE k + 0 = 3").rows(), [([None],)])


def test_a_time_in_a_query_is_in_utc_on_any_session(
    connect: Callable[..., Database], abroad: SparkSession, zone: str
) -> None:
    moment = datetime(2024, 1, 1, 12, tzinfo=UTC)
    for way in (ARROW, SPARK):
        db = connect(spark=abroad, settings=way)
        db.sql(
            "CREATE TABLE t (k Int32, t Timestamp, PRIMARY KEY (k)); UPSERT INTO t (k, t) VALUES (1, '2024-01-01 12:00:00')"
        )
        for text in (
            "'2024-01-01 12:00:00'",
            "TIMESTAMP '2024-01-01 12:00:00'",
            "'2024-01-01T14:00:00+02:00'",
        ):
            assert exactly(db.sql(f"SELECT t FROM t WHERE t = {text}").rows(), [(moment,)]), text
        db.sql(
            "UPSERT INTO t SELECT k + 1, TIMESTAMP '2024-01-01 12:00:00' FROM t; UPDATE t SET t = '2024-01-02' WHERE k = 1"
        )
        assert [db.table("t").get(k)["t"] for k in (1, 2)] == [datetime(2024, 1, 2, tzinfo=UTC), moment]  # type: ignore[index]
    assert abroad.conf.get("spark.sql.session.timeZone") == SESSION_ZONE


def test_a_naive_time_that_comes_in_is_in_utc(connect: Callable[..., Database], zone: str) -> None:
    db = connect()
    db.sql("CREATE TABLE t (k Int32, t Timestamp, PRIMARY KEY (k))")
    db.table("t").upsert([{"k": 1, "t": datetime(2024, 11, 3, 1, 30)}])
    assert exactly(db.sql("SELECT t FROM t").rows(), [(datetime(2024, 11, 3, 1, 30, tzinfo=UTC),)])


def test_records_of_a_stream_have_times_in_utc(db: Database, zone: str) -> None:
    db.sql(
        "CREATE TABLE t (k Datetime, t Timestamp, PRIMARY KEY (k)); ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE')"
    )
    db.table("t").upsert([{"k": CORNERS[0], "t": CORNERS[-1]}])
    (record,) = db.stream("/t/f").records()
    assert exactly((record["k"], record["t"]), (CORNERS[0], CORNERS[-1]))


def test_a_time_that_python_has_no_form_for_is_an_error_that_says_so(
    connect: Callable[..., Database], abroad: SparkSession
) -> None:
    db = connect(spark=abroad)
    for text in (
        "TIMESTAMP '+10000-01-01 00:00:00'",
        "TIMESTAMP '0000-12-31 23:00:00'",
        "array(TIMESTAMP '0000-12-31 23:00:00')",
    ):
        for ask in (lambda result: result.rows(), lambda result: result.collect(), list):
            with pytest.raises(InvalidArgument, match="Python cannot hold") as caught:
                ask(db.sql(f"SELECT {text} AS t"))
            assert caught.value.hint


@pytest.mark.parametrize("way", [ARROW, SPARK], ids=["here", "on Spark"])
def test_an_error_shows_a_time_in_utc(
    connect: Callable[..., Database], abroad: SparkSession, zone: str, way: Any
) -> None:
    db = connect(spark=abroad, settings=way)
    db.sql(
        "CREATE TABLE t (k Timestamp, s Datetime, PRIMARY KEY (k)); INSERT INTO t (k) VALUES ('2024-11-03T05:30:00Z')"
    )
    with pytest.raises(PreconditionFailed, match=r"\(k = 2024-11-03 05:30:00\+00:00\)"):
        db.sql("INSERT INTO t (k) VALUES ('2024-11-03T05:30:00Z')")
    with pytest.raises(InvalidArgument, match=r"2024-11-03 05:30:00\.5(00000)?\+00:00"):
        db.sql("UPSERT INTO t (k, s) SELECT k, TIMESTAMP '2024-11-03T05:30:00.5Z' FROM t")
