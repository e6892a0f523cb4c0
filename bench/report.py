"""Shared by the benchmarks: a working folder, and a table of figures with their targets."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


def folder_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", action="store_true", help="leave the files there")


@contextmanager
def folder_of(given: argparse.Namespace) -> Iterator[Path]:
    """Yield the folder of ``folder_options``, or a temporary one; delete it unless ``--keep`` is set."""
    folder = given.folder or Path(tempfile.mkdtemp(prefix="strandline-bench-"))
    try:
        yield folder
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Report:
    """Figures in the order of their measurement."""

    lines: list[tuple[str, str, str, str]] = field(default_factory=list)

    def at_most(self, figure: str, measured: float, target: float, unit: str = "x", detail: str = "") -> None:
        self._add(figure, measured, target, unit, detail, "at most", measured <= target)

    def at_least(
        self, figure: str, measured: float, target: float, unit: str = "x", detail: str = ""
    ) -> None:
        self._add(figure, measured, target, unit, detail, "at least", measured >= target)

    def note(self, figure: str, measured: str) -> None:
        """Add a figure without a target."""
        self._show((figure, measured, "", ""))

    def holds(self, figure: str, measured: str, ok: bool) -> None:
        self._show((figure, measured, "", "ok" if ok else "MISSED"))

    def _add(
        self, figure: str, measured: float, target: float, unit: str, detail: str, sense: str, ok: bool
    ) -> None:
        shown = f"{measured:.2f}{unit}" if measured < 100 else f"{measured:.0f}{unit}"
        self._show(
            (
                figure,
                f"{shown} ({detail})" if detail else shown,
                f"{sense} {target:g}{unit}",
                "ok" if ok else "MISSED",
            )
        )

    def _show(self, line: tuple[str, str, str, str]) -> None:
        self.lines.append(line)
        print(f"  {line[0]}: {line[1]} {line[3]}".rstrip(), flush=True)

    def render(self) -> str:
        rows = [("figure", "measured", "target", "ok"), *self.lines]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        shown = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([shown[0], "  ".join("-" * width for width in widths), *shown[1:]])
