"""DROP BACKUP, PRUNE, PIN and UNPIN as text, and retention rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidArgument, SyntaxFault
from strandline.sql.parser import parse
from strandline.sql.retention_rules import Keep, parse_keep
from strandline.sql.statements import DropBackup, DropBackupCollection, PinBackup, Prune

COUNTS = st.none() | st.integers(1, 400)
TIMES = st.builds("{}{}".format, st.integers(1, 400), st.sampled_from("mhdw"))
RULES = st.builds(
    Keep,
    last=COUNTS,
    within=st.none() | TIMES,
    daily=COUNTS,
    weekly=COUNTS,
    monthly=COUNTS,
    yearly=COUNTS,
)


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("DROP BACKUP c '20260101120000Z_full'", DropBackup("c", "20260101120000Z_full")),
        ("drop backup c 'x' confirm", DropBackup("c", "x", confirm=True)),
        ("DROP BACKUP `collection` x CONFIRM", DropBackup("collection", "x", confirm=True)),
        ("DROP BACKUP COLLECTION c", DropBackupCollection("c")),
        ("PIN BACKUP c 'x'", PinBackup("c", "x", pinned=True)),
        ("UNPIN BACKUP c 'x'", PinBackup("c", "x", pinned=False)),
        ("PRUNE c", Prune("c")),
        ("PRUNE c CONFIRM", Prune("c", confirm=True)),
        ("PRUNE c KEEP LAST 2 FULL", Prune("c", Keep(last=2))),
        ("PRUNE c KEEP WITHIN '30d' CONFIRM", Prune("c", Keep(within="30d"), confirm=True)),
        (
            "PRUNE c KEEP DAILY 7 WEEKLY 4 MONTHLY 12 YEARLY 3",
            Prune("c", Keep(daily=7, weekly=4, monthly=12, yearly=3)),
        ),
        (
            "PRUNE c KEEP DAILY 7 KEEP LAST 1 FULL KEEP WITHIN 12h",
            Prune("c", Keep(last=1, within="12h", daily=7)),
        ),
    ],
)
def test_statements(text: str, statement: object) -> None:
    assert parse(text) == [statement]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DROP BACKUP c", "name of a backup"),
        ("DROP BACKUP c 'x' NOW", "expected CONFIRM or the end"),
        ("DROP BACKUP c 'x' CONFIRM CONFIRM", "expected the end"),
        ("PIN c 'x'", "expected BACKUP"),
        ("PIN BACKUP c 'x' CONFIRM", "expected the end"),
        ("UNPIN BACKUP c", "name of a backup"),
        ("PRUNE", "name of a backup collection"),
        ("PRUNE c LAST 2 FULL", "expected CONFIRM or the end"),
        ("PRUNE c KEEP", "expected LAST, WITHIN"),
        ("PRUNE c KEEP LAST 2", "expected FULL"),
        ("PRUNE c KEEP LAST 0 FULL", "a number from 1 on"),
        ("PRUNE c KEEP DAILY 1.5", "a number from 1 on"),
        ("PRUNE c KEEP DAILY", "a number from 1 on"),
        ("PRUNE c KEEP WITHIN 30", "a time such as"),
        ("PRUNE c KEEP WITHIN '0d'", "a time such as"),
        ("PRUNE c KEEP WITHIN '30 days'", "a time such as"),
        ("PRUNE c KEEP DAILY 7 DAILY 8", "DAILY is given twice"),
        ("PRUNE c KEEP DAILY 7, WEEKLY 2", "expected LAST, WITHIN"),
    ],
)
def test_faults_say_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(SyntaxFault, match=f"line 1, column .*{message}") as caught:
        parse(text)
    assert caught.value.hint


@given(RULES.filter(lambda keep: keep != Keep()))
def test_rules_are_read_as_they_are_written(keep: Keep) -> None:
    assert parse_keep(str(keep)) == keep
    assert parse(f"PRUNE c {keep} CONFIRM") == [Prune("c", keep, confirm=True)]


@pytest.mark.parametrize("text", ["", "7", "KEEP", "KEEP DAILY 7 CONFIRM", "KEEP WITHIN 'x", "KEEP ALL"])
def test_what_holds_no_rules_is_no_value(text: str) -> None:
    with pytest.raises(InvalidArgument, match="not a retention rule"):
        parse_keep(text)
