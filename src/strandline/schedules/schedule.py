"""The record of a schedule: when tasks are due, and how missed, overlapping and failed runs are handled."""

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
"""The tasks of each kind of work. If several of them are due at the same time, only the first one runs."""


WORK_OF: Mapping[str, Work] = {task: work for work, tasks in WORKS.items() for task in tasks}
"""The kind of work of each task."""


class Due(NamedTuple):
    """A task and the time when it is due."""

    task: Task
    time: float


@dataclass(frozen=True, kw_only=True)
class ScheduleRecord(Record):
    """A schedule for one backup collection.

    Attributes:
        full: Cron line of full backups. None: never.
        incremental: Cron line of incremental backups. None: never.
        verify: Cron line of verifications. None: never.
        drill: Cron line of restore drills. A drill restores the last backup into a hidden path, compares the
            tables with the backup, and drops them. None: never.
        level: Level of the verifications.
        sample: Percentage of the objects that a verification checks. None: the objects not verified before.
        timezone: IANA name of the time zone of all cron lines.
        missed: What happens if no scheduler ran when a task was due.
        overlap: What happens if the previous run of the same kind of work has not ended.
        retries: Maximum number of times that a failed run is started again.
        retry_seconds: Pause before the first retry. The pause doubles for each further retry.
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
        """Return the schedule with changed settings. The names of settings are in upper case."""
        changes: dict[str, Any] = {}
        for name, value in settings:
            field, read = _setting(name)
            if field in changes:
                raise InvalidArgument(f"the setting {name} is given twice", "Give each setting once.")
            changes[field] = read(name, value)
        return _checked(replace(self, **changes))

    def without_settings(self, names: Iterable[str]) -> ScheduleRecord:
        """Return the schedule with some settings reset to their defaults."""
        fresh = ScheduleRecord(collection=self.collection)
        fields = [_setting(name)[0] for name in names]
        return _checked(replace(self, **{field: getattr(fresh, field) for field in fields}))

    def line(self, task: Task) -> CronLine | None:
        text: str | None = getattr(self, task)
        return None if text is None else CronLine(text, self.timezone)

    def last_due(self, work: Work, after: float, upto: float) -> Due | None:
        """Return the last time in ``(after, upto]`` when a kind of work was due, and the task to run.

        None: the work was not due. If a full backup was due in this period, the task is a full backup, even
        if increments were due after it.
        """
        found: list[Due] = []
        for task in WORKS[work]:
            line = self.line(task)
            time = None if line is None else line.last(after, upto)
            if time is not None:
                found.append(Due(task, time))
        return Due(found[0].task, max(due.time for due in found)) if found else None

    def next_due(self, after: float) -> Due | None:
        """Return the first task that is due after a time. None: no task is due."""
        found: list[Due] = []
        for task in _TASKS:
            line = self.line(task)
            time = None if line is None else line.next(after)
            if time is not None:
                found.append(Due(task, time))
        return min(found, key=lambda due: due.time, default=None)

    def works(self) -> Iterator[Work]:
        """Yield the kinds of work for which the schedule has a cron line."""
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
"""For each setting, the field of the record and the function that reads the value."""


def _setting(name: str) -> tuple[str, Callable[[str, Any], Any]]:
    if name not in _SETTINGS:
        raise InvalidArgument(
            f"a schedule has no setting {name}",
            did_you_mean(name, _SETTINGS) or f"It has {', '.join(_SETTINGS)}.",
        )
    return _SETTINGS[name]
