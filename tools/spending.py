"""Measure processor time and idle time of processes, independent of other load on the machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_WANTING = ("R", "D")
"""States of threads that run, wait for a processor, or wait for a disk."""


class Spending:
    """All processes of a session, sampled repeatedly.

    ``worked``: their processor time in seconds. ``idle``: the seconds in which all of them were asleep, or
    all seconds if the system does not tell.
    """

    def __init__(self, session: int) -> None:
        self._session = session
        self._looked = time.monotonic()
        self._known: dict[int, float] = {}
        self.idle = 0.0

    @property
    def worked(self) -> float:
        return sum(self._known.values())

    def look(self) -> None:
        now = time.monotonic()
        wants = False
        for process in PROC.glob("[0-9]*"):
            fields = _fields(process / "stat")
            if fields and int(fields[3]) == self._session:
                self._known[int(process.name)] = sum(map(int, fields[11:13])) / _TICKS
                threads = (_fields(stat) for stat in process.glob("task/*/stat"))
                wants = wants or any(each[0] in _WANTING for each in threads if each)
        if not wants:
            self.idle += now - self._looked
        self._looked = now


def _fields(stat: Path) -> list[str]:
    """Return the fields of a process or thread from its state on; nothing if it has ended."""
    try:
        return stat.read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []
