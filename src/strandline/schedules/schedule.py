"""The record of a schedule: when what is due, and how missed, overlapping and failed runs are handled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeAlias

from strandline.backups.verify.verification_history import LEVELS, Level
from strandline.errors import InvalidArgument
from strandline.names import did_you_mean
from strandline.records import Record
from strandline.schedules.cron import CronLine, read_zone

Task: TypeAlias = Literal["full", "incremental", "verify", "drill"]
Work: TypeAlias = Literal["backup", "verification", "drill"]

WORKS: Mapping[Work, tuple[Task, ...]] = {
    "backup": ("full", "incremental"),
    "verification": ("verify",),
    "drill": ("drill",),
}
"""The tasks of each work. Of tasks that are due together, the first one runs."""


class Due(NamedTuple):
    """A task and the time when it is due."""

    task: Task
    time: float


@dataclass(frozen=True, kw_only=True)
class ScheduleRecord(Record):
    """A schedule for one backup collection.

    Attributes:
        full: Cron line of full backups. The lines of the other tasks likewise; None: never.
        verify: Verifies all backups at ``level``, or a ``sample`` of their objects in percent.
        drill: Restores the last backup into a hidden path, compares it with what was backed up, and drops it.
        timezone: IANA name of the zone of all lines.
        missed: What happens if no scheduler ran when something was due.
        overlap: What happens if the previous run of the same work has not ended.
        retries: How often a failed run is started again.
        retry_seconds: Pause before the first retry. It doubles for each further one.
    """

    collection: str
    full: str | None = None
    incremental: str | None = None
    verify: str | None = None
    drill: str | None = None
    level: Level = "checksums"
    sample: int | None = None
    timezone: str = "UTC"
    missed: Literal["run", "skip"] = "run"
    overlap: Literal["wait", "skip"] = "wait"
    retries: int = 3
    retry_seconds: float = 60.0

    @staticmethod
    def of(collection: str, settings: Iterable[tuple[str, Any]]) -> ScheduleRecord:
        return ScheduleRecord(collection=collection).with_settings(settings)

    def with_settings(self, settings: Iterable[tuple[str, Any]]) -> ScheduleRecord:
        """Return the schedule with settings changed, each given by its name in upper case."""
        changes: dict[str, Any] = {}
        for name, value in settings:
            field, read = _setting(name)
            if field in changes:
                raise InvalidArgument(f"the setting {name} is given twice", "Give each setting once.")
            changes[field] = read(name, value)
        return _checked(replace(self, **changes))

    def without_settings(self, names: Iterable[str]) -> ScheduleRecord:
        """Return the schedule with settings back at their defaults."""
        fresh = ScheduleRecord(collection=self.collection)
        fields = [_setting(name)[0] for name in names]
        return _checked(replace(self, **{field: getattr(fresh, field) for field in fields}))

    def line(self, task: Task) -> CronLine | None:
        text: str | None = getattr(self, task)
        return None if text is None else CronLine(text, self.timezone)

    def last_due(self, work: Work, after: float, upto: float) -> Due | None:
        """Return the last time in ``(after, upto]`` when a work was due, and its task.

        A full backup that was due in this period replaces the increments after it.
        """
        found: list[Due] = []
        for task in WORKS[work]:
            line = self.line(task)
            time = None if line is None else line.last(after, upto)
            if time is not None:
                found.append(Due(task, time))
        return Due(found[0].task, max(due.time for due in found)) if found else None

    def next_due(self, after: float) -> Due | None:
        """Return what is due first after a time."""
        found: list[Due] = []
        for task in _TASKS:
            line = self.line(task)
            time = None if line is None else line.next(after)
            if time is not None:
                found.append(Due(task, time))
        return min(found, key=lambda due: due.time, default=None)

    def works(self) -> Iterator[Work]:
        """Yield the works for which there is a cron line."""
        for work, tasks in WORKS.items():
            if any(getattr(self, task) is not None for task in tasks):
                yield work


_TASKS: tuple[Task, ...] = tuple(task for tasks in WORKS.values() for task in tasks)


def _checked(record: ScheduleRecord) -> ScheduleRecord:
    read_zone(record.timezone)
    lines = [task for task in _TASKS if getattr(record, task) is not None]
    if not lines:
        raise InvalidArgument(
            "a schedule needs at least one cron line",
            "Add one, such as FULL '0 2 * * 0' or INCREMENTAL '0 2 * * 1-6'.",
        )
    for task in lines:
        CronLine.parse(getattr(record, task), record.timezone, task.upper())
    return record


def _read_line(name: str, value: Any) -> str | None:
    return None if value is None else " ".join(str(value).split())


def _read_text(name: str, value: Any) -> str:
    return str(value)


def _read_choice(*choices: str) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        found = str(value).lower()
        if found not in choices:
            raise InvalidArgument(
                f"{name} cannot be {value!r}", f"It is one of {', '.join(map(repr, choices))}."
            )
        return found

    return read


def _read_number(least: int, most: int) -> Callable[[str, Any], int]:
    def read(name: str, value: Any) -> int:
        text = str(int(value) if isinstance(value, (float, Decimal)) and value == int(value) else value)
        if isinstance(value, bool) or not re.fullmatch("[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise InvalidArgument(
                f"{name} cannot be {value!r}", f"Give a whole number from {least:,} to {most:,}."
            )
        return int(text)

    return read


def _read_percent(name: str, value: Any) -> int | None:
    return None if value is None else _read_number(1, 100)(name, value)


_SETTINGS: Mapping[str, tuple[str, Callable[[str, Any], Any]]] = {
    "FULL": ("full", _read_line),
    "INCREMENTAL": ("incremental", _read_line),
    "VERIFY": ("verify", _read_line),
    "DRILL": ("drill", _read_line),
    "LEVEL": ("level", _read_choice(*LEVELS)),
    "SAMPLE": ("sample", _read_percent),
    "TIMEZONE": ("timezone", _read_text),
    "MISSED": ("missed", _read_choice("run", "skip")),
    "OVERLAP": ("overlap", _read_choice("wait", "skip")),
    "RETRIES": ("retries", _read_number(0, 100)),
    "RETRY_SECONDS": ("retry_seconds", lambda name, value: float(_read_number(1, 86_400)(name, value))),
}
"""For each setting, its field and the function that reads its value."""


def _setting(name: str) -> tuple[str, Callable[[str, Any], Any]]:
    if name not in _SETTINGS:
        raise InvalidArgument(
            f"a schedule has no setting {name}",
            did_you_mean(name, _SETTINGS) or f"It has {', '.join(_SETTINGS)}.",
        )
    return _SETTINGS[name]
