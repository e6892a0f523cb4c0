"""Cron lines in a time zone, as Debian's cron reads them.

A line with a fixed hour that falls into the hour that daylight saving skips is due right after it, and one in
the hour that is repeated is due once. A line with ``*`` as hour or minute follows the clock on the wall.
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
"""Periods in which the last due time is looked for, before all of the time is searched."""


@dataclass(frozen=True)
class CronLine:
    """The times at which something is due."""

    text: str
    zone: str

    @staticmethod
    def parse(text: object, zone: str, what: str) -> CronLine:
        """Return a checked line; ``what`` is the name of the setting in errors."""
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
        """Return the first due time later than ``after``; None if there is none in 50 years."""
        return next(self._times(after), None)

    def last(self, after: float, upto: float) -> float | None:
        """Return the last due time later than ``after``, up to and including ``upto``; None without one."""
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

        In the repeated hour a time may be computed that is already over.
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
