"""Write docs/comparison.md from what bench/peers.py measured."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

TEMPLATE = Path(__file__).with_name("comparison.md")
KINDS = {
    "number": "a whole-number key",
    "text": "a text key",
    "composite": "a composite key of text and number",
}


@dataclass
class Compared:
    """Seconds by work and system, for one size and one kind of key."""

    rows: int
    kind: str
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, work: str, system: str, seconds: float) -> None:
        """Add a time; of several times the shortest counts, which is the least disturbed one."""
        times = self.seconds.setdefault(work, {})
        times[system] = min(seconds, times.get(system, seconds))

    def lines(self) -> Iterator[Line]:
        for work, times in self.seconds.items():
            peers = {name: taken for name, taken in times.items() if name != OURS}
            best = min(peers, key=lambda name: peers[name], default=None)
            ours = times.get(OURS)
            ratio = peers[best] / ours if best is not None and ours else None
            yield Line(work, times, best, ratio)


OURS = "Strandline"


@dataclass(frozen=True)
class Line:
    """One work: seconds by system, the best peer, and how many times faster Strandline is."""

    work: str
    seconds: dict[str, float]
    best: str | None
    ratio: float | None

    def cells(self, systems: Sequence[str]) -> list[str]:
        fastest = min(self.seconds.values())
        times = [self.seconds.get(name) for name in systems]
        shown = ["" if t is None else f"**{show(t)}**" if t == fastest else show(t) for t in times]
        return [self.work, *shown, "" if self.ratio is None else f"{show(self.ratio)}x"]


@dataclass(frozen=True)
class Disagreement:
    """Reads of table and index beside a writer, and in how many of them the two differed."""

    system: str
    reads: int
    wrong: int
    writes: int

    def __str__(self) -> str:
        return f"{self.system}: {self.wrong} of {self.reads} reads differ, beside {self.writes} upserts"


@dataclass(frozen=True)
class Setting:
    """Where and how a run took place."""

    date: str
    machine: str
    versions: str
    command: str

    @classmethod
    def of_this_machine(cls, command: str, jars: Iterable[Path]) -> Setting:
        versions = {"Strandline": version("strandline")}
        for jar in jars:
            if found := re.match(r"(delta|iceberg)-spark.*-([\d.]+)\.jar", jar.name):
                versions[found[1].capitalize()] = found[2]
        versions |= {"PySpark": version("pyspark"), "Python": platform.python_version()}
        return cls(
            datetime.now(timezone.utc).date().isoformat(),
            f"{processor()}, {os.cpu_count()} cores, {memory()} GB of memory, {platform.system()}",
            ", ".join(f"{name} {number}" for name, number in versions.items()),
            command,
        )


def processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def memory() -> int:
    try:
        found = re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text("utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return round(int(found[1]) / 2**20) if found else 0


def show(number: float) -> str:
    """Show three significant digits at most: 0.034, 0.97, 15.3, 120."""
    digits = 0 if number >= 100 else 1 if number >= 10 else 2 if number >= 0.1 else 3
    return f"{number:.{digits}f}"


def as_text(compared: Compared) -> str:
    systems = systems_of([compared])
    rows = [["seconds", *systems, "best peer / ours"], *(line.cells(systems) for line in compared.lines())]
    rows = [[cell.replace("**", "") for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def as_markdown(compared: Compared) -> str:
    systems = systems_of([compared])
    head = ["seconds", *systems, "times faster than the best peer"]
    rows = [head, ["---", *("---:" for _ in head[1:])], *(line.cells(systems) for line in compared.lines())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def systems_of(found: Sequence[Compared]) -> list[str]:
    return list(dict.fromkeys(name for c in found for times in c.seconds.values() for name in times))


def page(found: Sequence[Compared], beside: Sequence[Disagreement], where: Setting) -> str:
    """Return the page; what a peer does faster comes first."""
    tables = (f"## {c.rows:,} rows, {KINDS[c.kind]}\n\n{as_markdown(c)}" for c in found)
    return TEMPLATE.read_text("utf-8").format(
        behind=behind(found), tables="\n\n".join(tables), beside=as_shares(beside), **asdict(where)
    )


def behind(found: Sequence[Compared]) -> str:
    """Return what a peer does faster, as a list."""
    lines = [
        f"- {line.work}, {compared.rows:,} rows, {KINDS[compared.kind]}: {line.best} takes "
        f"{show(line.seconds[line.best])} s, Strandline {show(line.seconds[OURS])} s"
        for compared in found
        for line in compared.lines()
        if line.best is not None and line.ratio is not None and line.ratio < 1
    ]
    if not lines:
        return "In this run no peer was faster at any of the work below."
    return "A peer is faster here:\n\n" + "\n".join(lines)


def as_shares(beside: Sequence[Disagreement]) -> str:
    rows = [("", "reads", "table and index differ", "share", "upserts meanwhile"), ("---", *["---:"] * 4)]
    for line in beside:
        share = f"{100 * line.wrong / max(1, line.reads):.0f} %"
        rows.append((line.system, str(line.reads), str(line.wrong), share, str(line.writes)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) if beside else "Not measured in this run."
