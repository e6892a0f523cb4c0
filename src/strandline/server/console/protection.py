"""How well collections are protected, and what needs attention, in the words of the console.

This module alone reads the fields of ``db.status()`` and ``db.alarms()`` that are about objectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from strandline import Attention, CollectionInfo, CollectionStatus


@dataclass(frozen=True, kw_only=True)
class Protected:
    """The protection of a collection.

    Attributes:
        is_known: whether the other values are known. False: the client may not read the status.
        restorable_until: time of the newest backup that can be restored from the collection's storage.
        proved_level: level of the newest verification of its chain. None: it was never verified.
        objectives: the objectives of the collection with their periods in seconds.
        missed: the reason for each missed objective.
        away: why the repository cannot be reached. The other values are the last known ones.
    """

    name: str
    storage: str
    backups: int
    is_known: bool = False
    restorable_until: float | None = None
    proved_level: str | None = None
    proved_at: float | None = None
    chain_length: int | None = None
    objectives: Mapping[str, float] = field(default_factory=dict)
    missed: Mapping[str, str] = field(default_factory=dict)
    away: str | None = None


def protected_of(*, status: CollectionStatus | None = None, info: CollectionInfo | None = None) -> Protected:
    """Return the protection of a collection from its status, or what is known without it."""
    if status is None:
        assert info is not None
        return Protected(name=info.name, storage=info.storage, backups=info.backups)
    found: Any = getattr(status, "protection", None)
    is_here = status.storage == "cluster"
    known = Protected(
        name=status.name,
        storage=status.storage,
        backups=status.backups,
        is_known=True,
        chain_length=status.chain_length,
        restorable_until=status.restorable_here_until if is_here else status.restorable_until,
        proved_level=None if status.verified is None else status.verified.level,
        proved_at=None if status.verified is None else status.verified.time,
    )
    if found is None:
        return known
    objectives = {"restorable": found.rpo, "proved": found.proved_within}
    return replace(
        known,
        restorable_until=found.restorable_until,
        proved_level=found.proved_level,
        proved_at=found.proved_at,
        objectives={name: seconds for name, seconds in objectives.items() if seconds is not None},
        missed=dict(found.missed),
        away=found.away,
    )


@dataclass(frozen=True, kw_only=True)
class Concern:
    """A problem that needs attention, with its alarm if there is one.

    Attributes:
        kind: kind of the alarm; with ``subject`` it identifies the alarm. None: there is no alarm.
        since: when the alarm was raised.
        acknowledged_by: who acknowledged it. None: it is not acknowledged.
    """

    level: str
    about: str
    message: str
    hint: str
    kind: str | None = None
    subject: str | None = None
    since: float | None = None
    acknowledged_at: float | None = None
    acknowledged_by: str | None = None


def concerns_of(attention: Iterable[Attention], alarms: Iterable[Any]) -> list[Concern]:
    """Join the problems of the status with the open alarms.

    Alarms whose problem has just ended come last.
    """
    left = {(alarm.kind, alarm.subject): alarm for alarm in alarms}
    found = []
    for each in attention:
        concern = Concern(level=each.level, about=each.about, message=each.message, hint=each.hint)
        alarm = left.pop((getattr(each, "kind", None), getattr(each, "subject", None)), None)
        found.append(concern if alarm is None else _with_alarm(concern, alarm))
    for alarm in left.values():
        concern = Concern(level=alarm.level, about=alarm.subject, message=alarm.message, hint=alarm.hint)
        found.append(_with_alarm(concern, alarm))
    return found


def _with_alarm(concern: Concern, alarm: Any) -> Concern:
    return replace(
        concern,
        kind=alarm.kind,
        subject=alarm.subject,
        since=alarm.raised_at,
        acknowledged_at=alarm.acknowledged_at,
        acknowledged_by=alarm.acknowledged_by,
    )
