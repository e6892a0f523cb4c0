"""Cron lines in a time zone, as Debian's cron reads them.

When daylight saving time begins or ends, a line with a fixed hour is still due once: directly after the
skipped hour if its time falls into that hour, and only once in the repeated hour. A line with ``*`` as hour
or minute follows the local clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from strandline.errors import InvalidArgument

_FORM = "Write five fields: minute, hour, day of month, month, day of week, such as '0 2 * * 1-6'."
_WINDOWS = (3600.0, 86400.0, 32 * 86400.0, 400 * 86400.0)
"""Lengths of the periods that ``last`` searches first, before it searches the whole range."""


@dataclass(frozen=True)
class CronLine:
    """A cron line and its time zone: the times at which a task is due."""

    text: str
    zone: str

    @staticmethod
    def parse(text: object, zone: str, what: str) -> CronLine:
        """Check a line and return it. ``what`` is the name of the setting in errors."""
        found = CronLine(str(text).strip(), zone)
        read_zone(zone)
        if len(found.text.split()) != 5:
            raise InvalidArgument(f"{what} cannot be {text!r}: it does not have five fields", _FORM)
        try:
            next(found._times(0.0), None)
        except CronSimError as error:
            raise InvalidArgument(f"{what} cannot be {text!r}: {str(error).lower()}", _FORM) from None
        if found.next(0.0) is None:
            raise InvalidArgument(f"{what} cannot be {text!r}: there is no such day", _FORM)
        return found

    def next(self, after: float) -> float | None:
        """Return the first due time later than ``after``. None: no time is due within 50 years."""
        return next(self._times(after), None)

    def last(self, after: float, upto: float) -> float | None:
        """Return the last due time in ``(after, upto]``. None: no time in this range is due."""
        for window in (*_WINDOWS, float("inf")):
            start = max(after, upto - window)
            found = None
            for time in self._times(start):
                if time > upto:
                    break
                found = time
            if found is not None or start == after:
                return found
        return None

    def _times(self, after: float) -> Iterator[float]:
        """Yield the due times later than ``after``.

        In the repeated hour CronSim may also compute an earlier time, which is skipped.
        """
        for found in CronSim(self.text, datetime.fromtimestamp(after, read_zone(self.zone))):
            if (time := found.timestamp()) > after:
                yield time


def read_zone(name: str) -> tzinfo:
    """Return a time zone by its IANA name."""
    if name == "UTC":
        return timezone.utc  # Known without a time zone database.
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(
            f"there is no time zone {name!r}", "Use an IANA name such as 'UTC' or 'Europe/Berlin'."
        ) from None
