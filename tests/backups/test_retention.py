"""Retention decisions: never too few backups, always whole chains, and more rules keep more."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.backups.collection import BackupKind
from strandline.backups.record import BackupRecord, next_name
from strandline.backups.retention.retention import Decision, decide
from strandline.sql.retention_rules import Keep
from tests.sql.test_retention import RULES

DAY = 86400.0
NOW = datetime(2026, 11, 16, 12, tzinfo=timezone.utc).timestamp()
RULE_NAMES = ("last", "within", "daily", "weekly", "monthly", "yearly")


def taken(*times: tuple[BackupKind, float], pinned: tuple[int, ...] = ()) -> list[BackupRecord]:
    """Return backups of these kinds, taken some seconds ago. Each increment builds on the one before it."""
    found: list[BackupRecord] = []
    for place, (kind, ago) in enumerate(times):
        found.append(
            BackupRecord(
                name=next_name(kind, NOW - ago, [record.name for record in found]),
                kind=kind,
                parent=found[-1].name if kind == "incremental" else None,
                after_step=found[-1].step if kind == "incremental" else 0,
                step=place + 1,
                time=NOW - ago,
                stream=None,
                pinned=place in pinned,
            )
        )
    return found


@st.composite
def collections(draw: st.DrawFn) -> list[BackupRecord]:
    gaps = draw(st.lists(st.sampled_from([60.0, 3600.0, DAY / 2, DAY, 5 * DAY, 40 * DAY]), max_size=25))
    agos = [sum(gaps[place:]) for place in range(len(gaps))]
    kinds: list[BackupKind] = [
        "full" if place == 0 or draw(st.booleans()) else "incremental" for place in range(len(gaps))
    ]
    pinned = draw(st.sets(st.integers(0, 24), max_size=2))
    return taken(*zip(kinds, agos, strict=True), pinned=tuple(pinned))


def kept(decisions: list[Decision]) -> set[str]:
    return {decision.backup for decision in decisions if decision.keep}


def names(records: list[BackupRecord]) -> list[str]:
    return [record.name for record in records]


@given(collections(), RULES, st.integers(1, 4))
def test_so_many_full_backups_are_never_undercut(
    records: list[BackupRecord], rules: Keep, minimum: int
) -> None:
    staying = kept(decide(records, rules, NOW, minimum=minimum))
    full = [record.name for record in records if record.kind == "full"]
    assert set(full[-minimum:]) <= staying
    assert not records or records[-1].name in staying


@given(collections(), RULES, st.integers(1, 4), st.data())
def test_what_waits_does_not_stand_in_for_what_is_in_the_repository(
    records: list[BackupRecord], rules: Keep, minimum: int, data: st.DataObject
) -> None:
    sent: list[BackupRecord] = []
    for record in records:
        can_be = record.parent is None or record.parent in {r.name for r in sent if r.stored}
        is_there = can_be and data.draw(st.booleans())
        sent.append(replace(record, stored="/repository" if is_there else None))
    there = [record for record in sent if record.stored]
    staying = kept(decide(sent, rules, NOW, minimum=minimum, storage="/repository"))
    assert kept(decide(there, rules, NOW, minimum=minimum)) <= staying
    assert kept(decide(sent, rules, NOW, minimum=minimum)) <= staying
    assert all(r.parent in staying for r in sent if r.parent is not None and r.name in staying)
    if len(there) == len(sent):
        assert decide(sent, rules, NOW, minimum=minimum, storage="/repository") == decide(
            sent, rules, NOW, minimum=minimum
        )


@given(collections(), RULES)
def test_chains_are_whole(records: list[BackupRecord], rules: Keep) -> None:
    staying = kept(decide(records, rules, NOW, minimum=1))
    assert all(r.parent in staying for r in records if r.parent is not None and r.name in staying)


@given(collections(), RULES, RULES)
def test_more_rules_keep_more(records: list[BackupRecord], some: Keep, others: Keep) -> None:
    added: dict[str, Any] = {n: getattr(others, n) for n in RULE_NAMES if getattr(some, n) is None}
    more = replace(some, **added)
    assert kept(decide(records, some, NOW, minimum=1)) <= kept(decide(records, more, NOW, minimum=1))


@given(collections(), RULES, st.sampled_from(["last", "daily", "weekly", "monthly", "yearly"]))
def test_a_larger_number_keeps_more(records: list[BackupRecord], rules: Keep, rule: str) -> None:
    one_more: dict[str, Any] = {rule: (getattr(rules, rule) or 0) + 1}
    larger = replace(rules, **one_more)
    assert kept(decide(records, rules, NOW, minimum=1)) <= kept(decide(records, larger, NOW, minimum=1))


@given(collections(), st.integers(1, 5))
def test_each_of_the_last_days_keeps_its_newest(records: list[BackupRecord], number: int) -> None:
    days: dict[str, str] = defaultdict(str)
    for record in records:
        days[datetime.fromtimestamp(record.time, timezone.utc).date().isoformat()] = record.name
    expected = {days[day]: f"daily {day}" for day in sorted(days)[-number:]}
    decisions = decide(records, Keep(daily=number), NOW, minimum=1)
    by_day = {d.backup: reason for d in decisions for reason in d.reasons if reason.startswith("daily")}
    assert by_day == expected


@given(collections(), RULES)
def test_what_is_pinned_or_under_operation_stays_with_what_it_needs(
    records: list[BackupRecord], rules: Keep
) -> None:
    busy = names(records)[:1]
    decisions = decide(records, rules, NOW, minimum=1, busy=busy)
    staying = kept(decisions)
    assert {*busy, *(record.name for record in records if record.pinned)} <= staying
    assert all(decision.reasons for decision in decisions)
    assert [decision.backup for decision in decisions] == names(records)


@given(collections(), RULES, st.integers(1, 3))
def test_what_was_decided_is_decided_again(records: list[BackupRecord], rules: Keep, minimum: int) -> None:
    """After the removal, the same rules remove nothing more."""
    staying = kept(decide(records, rules, NOW, minimum=minimum))
    left = [record for record in records if record.name in staying]
    if all(getattr(rules, n) is None for n in ("daily", "weekly", "monthly", "yearly")):
        assert kept(decide(left, rules, NOW, minimum=minimum)) == staying
    assert set(names(left)[-1:]) <= kept(decide(left, rules, NOW, minimum=minimum))


def reasons(records: list[BackupRecord], rules: Keep, minimum: int = 1) -> list[str]:
    decisions = decide(records, rules, NOW, minimum=minimum)
    return [f"{'keep' if d.keep else 'remove'}: {', '.join(d.reasons)}" for d in decisions]


def test_reasons() -> None:
    records = taken(
        ("full", 40 * DAY),
        ("incremental", 39 * DAY),
        ("incremental", 38 * DAY),
        ("full", 20 * DAY),
        ("incremental", 19 * DAY),
        ("full", 2 * DAY),
        ("incremental", 1 * DAY),
        pinned=(1,),
    )
    assert reasons(records, Keep(within="19d")) == [
        f"keep: needed by {records[1].name}",
        "keep: pinned",
        "remove: no rule keeps it",
        f"keep: needed by {records[4].name}",
        "keep: within 19d",
        "keep: within 19d, minimum",
        "keep: within 19d, minimum",
    ]
    assert reasons(records, Keep(last=2), minimum=2)[3:] == ["keep: last 2 full, minimum"] * 4


@pytest.mark.parametrize(
    ("rule", "buckets"),
    [
        ("weekly", ["2026-W45", "2026-W46", "2026-W47"]),
        ("monthly", ["2026-11"]),
        ("yearly", ["2026"]),
        ("daily", ["2026-11-08", "2026-11-09", "2026-11-15", "2026-11-16"]),
    ],
)
def test_buckets_are_those_of_utc(rule: str, buckets: list[str]) -> None:
    """A week begins on Monday: 2026-11-09 and 2026-11-16 are two of them."""
    moments = ["2026-11-08 23:59:59", "2026-11-09 00:00:00", "2026-11-15 23:59:59", "2026-11-16 00:00:00"]
    agos = [NOW - datetime.fromisoformat(f"{moment}+00:00").timestamp() for moment in moments]
    records = taken(*(("full", ago) for ago in agos))
    rules: dict[str, Any] = {rule: 9}
    decisions = decide(records, Keep(**rules), NOW, minimum=1)
    found = [r.removeprefix(f"{rule} ") for d in decisions for r in d.reasons if r.startswith(rule)]
    assert found == buckets
    newest = {"weekly": [0, 2, 3], "monthly": [3], "yearly": [3], "daily": [0, 1, 2, 3]}[rule]
    assert [p for p, d in enumerate(decisions) if d.keep] == newest


@pytest.mark.parametrize(("within", "number"), [("90m", 1), ("12h", 2), ("3d", 3), ("2w", 4)])
def test_times(within: str, number: int) -> None:
    records = taken(*(("full", ago) for ago in (15 * DAY, 13 * DAY, 2 * DAY, DAY / 3, 3600.0)))
    assert kept(decide(records, Keep(within=within), NOW, minimum=1)) == set(names(records)[-number:])
