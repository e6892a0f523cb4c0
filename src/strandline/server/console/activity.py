"""The data of the page of metrics: the last day by hour, from the catalog, and the present values.

Nothing is sampled. The catalog keeps ended operations and commits for longer than a day by default, so the
page is complete after a restart of the service. It says so if the warehouse keeps them for a shorter time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from prometheus_client.parser import text_string_to_metric_families

from strandline import OperationInfo, names
from strandline.catalog.commit_history import count_commits
from strandline.catalog.warehouse_settings import settings_at
from strandline.server.console.client import PageClient
from strandline.server.console.formats import iso, number, period, size
from strandline.server.console.pictures import Tick, nice_top

HOUR = 3600
HOURS = 24
SAMPLES = 20
"""Maximum number of present values of a metric that the page shows."""
_TOP, _BASE = 8.0, 96.0
"""Highest and lowest position of bars, in pixels from the top."""
_STATES = ("done", "failed", "cancelled", "running")
_UNFINISHED = ("running", "cancelling")


@dataclass(frozen=True, kw_only=True)
class StackedBar:
    """A part of the bar of an hour."""

    name: str
    x: float
    width: float
    y: float
    height: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Bars for each hour. ``top`` is the value of the upper line, ``summary`` the chart in words."""

    title: str
    note: str
    top: str
    bars: Sequence[StackedBar]
    ticks: Sequence[Tick]
    summary: str


@dataclass(frozen=True, kw_only=True)
class MetricFamily:
    """A metric with its present values: pairs of labels and value as text. ``more``: further values."""

    name: str
    text: str
    samples: Sequence[tuple[str, str]]
    more: int


@dataclass(frozen=True, kw_only=True)
class Activity:
    """Data of the page of metrics. ``covers`` says which time the charts cover."""

    covers: str
    charts: Sequence[Chart]
    families: Sequence[MetricFamily]


def read_activity(client: PageClient, now: float) -> Activity:
    client.principal.require_all_paths()
    last = int(now // HOUR)
    since = float((last - HOURS + 1) * HOUR)
    with client.db._guard(), client.db._runtime.catalog.read() as conn:
        commits = count_commits(conn, since, HOUR)
        kept = settings_at(conn, now)
    operations: list[OperationInfo] = client.call("Database.operations", since=since)
    by_state: dict[str, Counter[int]] = {state: Counter() for state in _STATES}
    written: Counter[int] = Counter()
    for each in operations:
        hour = int(each.created // HOUR)
        by_state["running" if each.state in _UNFINISHED else each.state][hour] += 1
        if each.kind in ("backup", "incremental backup"):
            written[hour] += int((each.result or {}).get("bytes") or 0)
    hours = range(last - HOURS + 1, last + 1)
    covers = f"By hour, {iso(since)} until now, read from the catalog."
    shorter = [
        f"{what} only for {period(seconds)}"
        for what, seconds in (
            ("operations", kept.operation_history_seconds),
            ("commits", kept.history_seconds),
        )
        if seconds < HOURS * HOUR
    ]
    if shorter:
        covers += f" The warehouse keeps {' and '.join(shorter)}, so earlier hours are not complete."
    totals = {state: sum(counts.values()) for state, counts in by_state.items()}
    said = ", ".join(f"{count:,} {state}" for state, count in totals.items() if count)
    return Activity(
        covers=covers,
        charts=[
            _chart(
                "Operations",
                "started in the hour, by their outcome",
                hours,
                by_state,
                said or "no operation was started",
            ),
            _chart(
                "Size of backups",
                "taken in the hour",
                hours,
                {"done": written},
                f"{size(sum(written.values()))} in backups",
                is_size=True,
            ),
            _chart(
                "Commits",
                "that changed tables in the hour",
                hours,
                {"done": Counter(commits)},
                names.count(sum(commits.values()), "commit"),
            ),
        ],
        families=list(_families(client.db.metrics())),
    )


def _chart(
    title: str,
    note: str,
    hours: range,
    series: Mapping[str, Mapping[int, int]],
    summary: str,
    *,
    is_size: bool = False,
) -> Chart:
    text = size if is_size else number
    highest = max(sum(values.get(hour, 0) for values in series.values()) for hour in hours)
    top = nice_top(highest) if is_size else max(1.0, float(nice_top(highest)))
    width = 100 / len(hours)
    bars = []
    for place, hour in enumerate(hours):
        y = _BASE
        for name, values in series.items():
            value = values.get(hour, 0)
            if not value:
                continue
            height = max(2.0, (_BASE - _TOP) * value / top)
            y -= height
            bars.append(
                StackedBar(
                    name=name,
                    x=round(place * width + width * 0.12, 3),
                    width=round(width * 0.76, 3),
                    y=round(y, 1),
                    height=round(height, 1),
                    text=f"{iso(hour * HOUR)}: {text(value)}{'' if is_size else f' {name}'}",
                )
            )
    ticks = [
        Tick(x=round(place * width, 3), text=_clock(hour), anchor="start")
        for place, hour in enumerate(hours)
        if place % 6 == 0
    ]
    label = size(top).replace(".0", "") if is_size else f"{top:g}"
    return Chart(title=title, note=note, top=label, bars=bars, ticks=ticks, summary=summary)


def _clock(hour: int) -> str:
    return datetime.fromtimestamp(hour * HOUR, timezone.utc).strftime("%H:%MZ")


def _families(text: str) -> Iterator[MetricFamily]:
    """Yield the present values, without the buckets of histograms."""
    for family in text_string_to_metric_families(text):
        samples = [
            (
                ", ".join([*_suffix(family.name, each.name), *(f"{k} {v}" for k, v in each.labels.items())]),
                _value(each.name, each.value),
            )
            for each in family.samples
            if not each.name.endswith("_bucket")
        ]
        if samples:
            yield MetricFamily(
                name=family.name,
                text=family.documentation,
                samples=samples[:SAMPLES],
                more=max(0, len(samples) - SAMPLES),
            )


def _suffix(family: str, name: str) -> list[str]:
    """Return ``sum`` or ``count`` for a sample of a histogram."""
    suffix = name.removeprefix(family).lstrip("_")
    return [suffix] if suffix in ("sum", "count") else []


def _value(name: str, value: float) -> str:
    if name.endswith("_timestamp_seconds"):
        return iso(value)
    if name.endswith("_bytes"):
        return size(value)
    return f"{value:,.3f}".rstrip("0").rstrip(".")
