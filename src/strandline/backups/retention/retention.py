"""Retention: decide from the rules and the time which backups of a collection to keep.

A backup stays if a rule keeps it, if it is pinned or under an operation, or if a backup that stays builds on
it. So a backup is deleted only together with all backups that build on it. Days, weeks (from Monday), months
and years are in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from strandline.backups.collection import CLUSTER
from strandline.backups.record import BackupHead
from strandline.sql.retention_rules import Keep

_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BUCKETS: Mapping[str, Callable[[datetime], str]] = {
    "daily": lambda moment: moment.strftime("%Y-%m-%d"),
    "weekly": lambda moment: "{:04}-W{:02}".format(*moment.isocalendar()[:2]),
    "monthly": lambda moment: moment.strftime("%Y-%m"),
    "yearly": lambda moment: moment.strftime("%Y"),
}
"""For each rule, a function that returns the bucket name of a time. The names sort in the order of time."""


@dataclass(frozen=True)
class Decision:
    """Whether a backup stays, and why.

    Attributes:
        bytes: Size in the warehouse or repository of a backup that is removed. None: the backup stays, or the
            size is not computed yet.
    """

    backup: str
    keep: bool
    reasons: tuple[str, ...]
    bytes: int | None = None


def decide(
    records: Sequence[BackupHead],
    rules: Keep,
    now: float,
    *,
    minimum: int,
    busy: Collection[str] = (),
    storage: str = CLUSTER,
) -> list[Decision]:
    """Decide for each finished backup of a collection whether it stays; return the decisions, oldest first.

    If the collection has a repository, the rules are also applied to the uploaded backups alone. So a backup
    that is not uploaded yet does not count in place of an uploaded one.

    Args:
        records: The backups, oldest first.
        minimum: Number of newest full backups that always stay, with all backups that build on them.
        busy: Backups that an operation works on. They also stay.
        storage: Where the collection stores its backups.
    """
    reasons: dict[str, list[str]] = {record.name: [] for record in records}
    for name, reason in (
        *_choose_by_rules(records, rules, now, minimum),
        *((record.name, "pinned") for record in records if record.pinned),
        *((record.name, "under operation") for record in records if record.name in busy),
    ):
        reasons[name].append(reason)
    if storage != CLUSTER:
        there = [record for record in records if record.stored == storage]
        for name, reason in _choose_by_rules(there, rules, now, minimum):
            if reason not in reasons[name]:
                reasons[name].append(f"{reason} in the repository")
    needed = _needed_by(records, {name for name, found in reasons.items() if found})
    for name, by in needed.items():
        reasons[name].append(f"needed by {by}")
    return [Decision(n, bool(found), tuple(found) or ("no rule keeps it",)) for n, found in reasons.items()]


def kept_by_name(records: Sequence[BackupHead], rules: Keep | None, now: float) -> set[str]:
    """Return the backups that are kept individually: those that are pinned or chosen by a time rule."""
    chosen = () if rules is None else _by_rules(records, replace(rules, last=None), now)
    return {record.name for record in records if record.pinned} | {name for name, _ in chosen}


def descendants(records: Sequence[BackupHead], name: str) -> list[str]:
    """Return the direct and indirect children of a backup, oldest first."""
    found = {name}
    for record in records:
        if record.parent in found:
            found.add(record.name)
    return [record.name for record in records if record.name in found and record.name != name]


def _choose_by_rules(
    records: Sequence[BackupHead], rules: Keep, now: float, minimum: int
) -> Iterator[tuple[str, str]]:
    yield from _by_rules(records, rules, now)
    for name in _last_chains(records, minimum):
        yield name, "minimum"


def _by_rules(records: Sequence[BackupHead], rules: Keep, now: float) -> Iterator[tuple[str, str]]:
    if rules.last is not None:
        for name in _last_chains(records, rules.last):
            yield name, f"last {rules.last} full"
    if rules.within is not None:
        oldest = now - int(rules.within[:-1]) * _SECONDS[rules.within[-1]]
        for record in records:
            if record.time >= oldest:
                yield record.name, f"within {rules.within}"
    for rule, bucket_of in _BUCKETS.items():
        number = getattr(rules, rule)
        if number is not None:
            buckets = {
                bucket_of(datetime.fromtimestamp(record.time, timezone.utc)): record.name
                for record in records
            }
            for bucket in sorted(buckets)[-number:]:
                yield buckets[bucket], f"{rule} {bucket}"


def _last_chains(records: Sequence[BackupHead], number: int) -> list[str]:
    """Return the last ``number`` full backups with all backups that build on them."""
    full = [record.name for record in records if record.kind == "full"][-number:]
    return [name for root in full for name in (root, *descendants(records, root))]


def _needed_by(records: Sequence[BackupHead], kept: Collection[str]) -> dict[str, str]:
    """Return the backups that stay only because kept backups build on them.

    The value for each backup is the newest kept backup that builds on it.
    """
    parents = {record.name: record.parent for record in records}
    needed: dict[str, str] = {}
    for record in reversed(records):
        here = record.parent if record.name in kept else None
        while here in parents and here not in kept and here not in needed:
            needed[here] = record.name
            here = parents[here]
    return needed
