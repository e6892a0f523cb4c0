"""One parser reads ``at`` for SQL, Python, the command line and Spark's options."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest

from strandline.errors import InvalidArgument
from strandline.sql.at import At, parse_at, parse_backup

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NAME = "20260131120000Z_full"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, At()),
        (0, At(step=0)),
        (17, At(step=17)),
        ("17", At(step=17)),
        ("2026-01-31T12:00:00Z", At(time=NOON)),
        ("2026-01-31 14:00:00+02:00", At(time=NOON)),
        (NOON, At(time=NOON)),
        (NOON.astimezone(timezone(timedelta(hours=5))), At(time=NOON)),
        (NOON.replace(tzinfo=None), At(time=NOON)),
    ],
)
def test_a_step_or_a_time(value: Any, expected: At) -> None:
    assert parse_at(value) == parse_at(value, or_backup=True) == expected


@pytest.mark.parametrize("value", [NAME, "latest", "9" * 20])
def test_the_name_of_a_backup(value: str) -> None:
    assert parse_at(value, or_backup=True) == At(backup=value)
    with pytest.raises(InvalidArgument, match=f"^--at cannot be '{value}'") as caught:
        parse_at(value, "--at")
    assert caught.value.hint == "Give a step, or a time in ISO form: 2026-01-31T12:00:00Z."


@pytest.mark.parametrize("value", [True, 1.5, date(2026, 1, 31), [], "2026-13-01", "2026-01-31T25:00:00Z"])
def test_what_is_neither(value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^at cannot be ") as caught:
        parse_at(value, or_backup=True)
    assert caught.value.hint.startswith("Give the name of a backup, a step, or a time in ISO form")


def test_a_collection_and_one_of_its_backups() -> None:
    assert parse_backup("nightly") == parse_backup("nightly/") == ("nightly", None)
    assert parse_backup(f"nightly/{NAME}") == ("nightly", NAME)
    for text in ("", "/", "a/b/c", None):
        with pytest.raises(InvalidArgument, match="backup cannot be"):
            parse_backup(text)  # type: ignore[arg-type]
