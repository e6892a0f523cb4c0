"""Cron lines: due times in time zones, also where the clock is changed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as some

from strandline.errors import InvalidArgument
from strandline.schedules.cron import CronLine, read_zone

BERLIN = "Europe/Berlin"
LINES = [
    "*/20 * * * *",
    "30 2 * * *",
    "0 2 * * 0",
    "15 1-3 * * *",
    "0 12 1 * *",
    "30 2 29 3,10 *",
    "0 * * * 1-5",
]


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def all_due(line: CronLine, after: float, upto: float) -> list[float]:
    found: list[float] = []
    time = line.next(after)
    while time is not None and time <= upto:
        found.append(time)
        time = line.next(time)
    return found


def test_a_fixed_hour_that_daylight_saving_skips_is_due_right_after() -> None:
    line = CronLine.parse("30 2 * * *", BERLIN, "FULL")
    found = all_due(line, at("2026-03-28T12:00", BERLIN), at("2026-03-30T12:00", BERLIN))
    assert [datetime.fromtimestamp(t, timezone.utc).isoformat() for t in found] == [
        "2026-03-29T01:00:00+00:00",
        "2026-03-30T00:30:00+00:00",
    ]


def test_a_fixed_hour_that_is_repeated_is_due_once() -> None:
    line = CronLine.parse("30 2 * * *", BERLIN, "FULL")
    found = all_due(line, at("2026-10-24T12:00", BERLIN), at("2026-10-26T12:00", BERLIN))
    assert [datetime.fromtimestamp(t, timezone.utc).isoformat() for t in found] == [
        "2026-10-25T00:30:00+00:00",
        "2026-10-26T01:30:00+00:00",
    ]
    repeated = at("2026-10-25T00:40", "UTC")  # 02:40 for the first time; 02:30 comes once more on the wall
    assert line.next(repeated + 3000) == at("2026-10-26T01:30", "UTC")


def test_every_minute_follows_the_time_that_passes() -> None:
    line = CronLine.parse("*/30 * * * *", BERLIN, "FULL")
    found = all_due(line, at("2026-10-25T00:00", "UTC"), at("2026-10-25T03:00", "UTC"))
    assert [b - a for a, b in zip(found, found[1:], strict=False)] == [1800.0] * (len(found) - 1)
    assert len(found) == 6


@given(
    text=some.sampled_from(LINES),
    zone=some.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe"]),
    start=some.integers(1_750_000_000, 1_800_000_000),
    length=some.floats(0, 40 * 86400.0),
)
def test_the_last_due_time_is_the_last_of_all(text: str, zone: str, start: int, length: float) -> None:
    line = CronLine.parse(text, zone, "FULL")
    found = all_due(line, start, start + length)
    assert line.last(start, start + length) == (found[-1] if found else None)
    assert found == sorted(set(found))


def test_the_last_due_time_of_years_is_found_soon() -> None:
    line = CronLine.parse("* * * * *", "UTC", "FULL")
    now = at("2026-01-01T00:00:30")
    assert line.last(now - timedelta(days=20 * 365).total_seconds(), now) == at("2026-01-01T00:00")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "five fields"),
        ("@daily", "five fields"),
        ("0 2 * * * *", "five fields"),
        ("60 2 * * *", "bad minute"),
        ("0 25 * * *", "bad hour"),
        ("0 2 30 2 *", "day"),
        ("0 2 * * MOON", "bad day-of-week"),
        (None, "five fields"),
    ],
)
def test_a_bad_line_is_refused(text: object, part: str) -> None:
    with pytest.raises(InvalidArgument, match=part) as refused:
        CronLine.parse(text, "UTC", "FULL")
    assert "'0 2 * * 1-6'" in (refused.value.hint or "")


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../../etc/passwd", "/etc/passwd", "UTC\0"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="there is no time zone"):
        read_zone(name)
