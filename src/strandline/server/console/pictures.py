"""Geometry of the pictures of the console.

Positions along the horizontal axis are percentages, so that a picture fills the page at any width while its
text keeps its size. Vertical positions are pixels from the top.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

HEIGHT = 150.0
"""Height of the area with bars, in pixels."""
TOP = 22.0
"""Space above the area, for the marks of the highest bars."""
_LEAST_BAR = 4.0
_SPACING = 3.2
"""Least distance of neighbouring bars if there are few of them, in percent."""
_EDGE = 1.0
"""Space at the left and right end, in percent."""
_TICKS = 4
"""Maximum number of dates along the axis."""


@dataclass(frozen=True, kw_only=True)
class GridLine:
    """A line of the grid: its distance from the top, and the value that it stands for."""

    y: float
    value: float


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bar: its left end and width in percent, its top and height in pixels."""

    x: float
    width: float
    y: float
    height: float

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 3)


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A date below the axis. ``anchor`` is the value of the attribute ``text-anchor``."""

    x: float
    text: str
    anchor: str


@dataclass(frozen=True, kw_only=True)
class Band:
    """The part of the axis that a chain of backups covers."""

    x: float
    width: float


@dataclass(frozen=True, kw_only=True)
class TimeLine:
    """Bars of backups by time, with a logarithmic axis of sizes."""

    bars: tuple[Bar, ...]
    bands: tuple[Band, ...]
    grid: tuple[GridLine, ...]
    ticks: tuple[Tick, ...]


def time_line(times: Sequence[float], sizes: Sequence[float], chains: Sequence[int]) -> TimeLine:
    """Place backups along the time axis.

    A backup stands at its time. Where backups are closer than a bar is wide, they are moved apart.

    Args:
        times: times of the backups, in order.
        sizes: their sizes in bytes.
        chains: for each backup, the number of its chain.
    """
    if not times:
        return TimeLine(bars=(), bands=(), grid=(), ticks=())
    spacing = min(_SPACING, (100.0 - 2 * _EDGE) / len(times))
    lefts = _spread(times, spacing)
    width = spacing * 0.72
    low, high = _decades(sizes)

    def height(value: float) -> float:
        share = (math.log10(max(value, 10.0**low)) - low) / (high - low)
        return max(_LEAST_BAR, share * HEIGHT)

    bars = tuple(
        Bar(
            x=round(left, 3),
            width=round(width, 3),
            y=round(TOP + HEIGHT - height(value), 1),
            height=round(height(value), 1),
        )
        for left, value in zip(lefts, sizes, strict=True)
    )
    grid = tuple(
        GridLine(y=round(TOP + HEIGHT * (high - power) / (high - low), 1), value=10.0**power)
        for power in range(low, high + 1)
    )
    return TimeLine(bars=bars, bands=_bands(bars, chains), grid=grid, ticks=_ticks(times, bars))


def _decades(sizes: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten below the smallest and above the largest size."""
    there = [value for value in sizes if value > 0] or [1.0]
    low = math.floor(math.log10(min(there)))
    return low, max(low + 1, math.ceil(math.log10(max(there))))


def _spread(times: Sequence[float], spacing: float) -> list[float]:
    """Return positions in percent: in proportion to the times, but at least ``spacing`` apart."""
    span = times[-1] - times[0]
    room = 100.0 - 2 * _EDGE - spacing
    wanted = [_EDGE + (room * (time - times[0]) / span if span > 0 else 0.0) for time in times]
    for at in range(1, len(wanted)):
        wanted[at] = max(wanted[at], wanted[at - 1] + spacing)
    last = _EDGE + room
    for at in range(len(wanted) - 1, -1, -1):
        wanted[at] = min(wanted[at], last)
        last = wanted[at] - spacing
    return wanted


def _bands(bars: Sequence[Bar], chains: Sequence[int]) -> tuple[Band, ...]:
    found = []
    for number in dict.fromkeys(chains):
        of = [bar for bar, chain in zip(bars, chains, strict=True) if chain == number]
        found.append(Band(x=of[0].x, width=round(of[-1].x + of[-1].width - of[0].x, 3)))
    return tuple(found)


def _ticks(times: Sequence[float], bars: Sequence[Bar]) -> tuple[Tick, ...]:
    """Return the dates of the first and last backup, and of some between them that are far enough apart."""
    is_short = times[-1] - times[0] < 86400
    room = (100.0 - 2 * _EDGE) / _TICKS
    found: list[Tick] = []
    for time, bar in zip(times, bars, strict=True):
        if found and bar.middle - found[-1].x < room:
            continue
        at = datetime.fromtimestamp(time, timezone.utc)
        text = at.strftime("%H:%M:%SZ" if is_short else "%m-%d" if found else "%Y-%m-%d")
        anchor = "start" if bar.middle < 6 else "end" if bar.middle > 94 else "middle"
        x = bar.x if anchor == "start" else bar.x + bar.width if anchor == "end" else bar.middle
        found.append(Tick(x=round(x, 3), text=text, anchor=anchor))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A curve in a box of 100 by 100 units, and the highest value of its axis."""

    line: str
    area: str
    top: float


def curve(times: Sequence[float], values: Sequence[float]) -> Curve:
    """Draw values that hold from one time until the next."""
    span = (times[-1] - times[0]) or 1.0
    top = nice_top(max(values))
    points = [
        (100 * (time - times[0]) / span, 100 - 100 * value / top)
        for time, value in zip(times, values, strict=True)
    ]
    line = [f"M{points[0][0]:.2f},{points[0][1]:.2f}"]
    line += [f"H{x:.2f}V{y:.2f}" for x, y in points[1:]]
    if len(points) == 1:
        line.append("H100")
    text = "".join(line)
    return Curve(line=text, area=f"{text}V100H0Z", top=top)


def nice_top(value: float) -> float:
    """Return a round number that is at least ``value``."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 7.5, 10) if step * power >= value)


@dataclass(frozen=True, kw_only=True)
class DividedPiece:
    """A piece of a bar that is divided in proportion, in percent."""

    x: float
    width: float


def divide(sizes: Sequence[float]) -> tuple[DividedPiece, ...]:
    """Divide a bar in proportion to sizes. Small pieces stay visible."""
    least = min(0.6, 60.0 / max(1, len(sizes)))
    total = sum(sizes) or 1.0
    shares = [max(least, 100 * value / total) for value in sizes]
    scale, found, x = 100 / (sum(shares) or 1.0), [], 0.0
    for share in shares:
        found.append(DividedPiece(x=round(x, 3), width=round(share * scale, 3)))
        x += share * scale
    return tuple(found)
