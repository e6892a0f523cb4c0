"""``maintain``: run one round of housekeeping."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from strandline.cli import completion
from strandline.cli.options import CARE, command
from strandline.cli.session import Cli
from strandline.names import count


def register(app: typer.Typer) -> None:
    command(app, "maintain", CARE, example="strandline maintain --quiet", quiet=True)(maintain)


def maintain(
    cli: Cli,
    path: Annotated[
        str | None,
        typer.Argument(help="A table or a directory (default: all).", autocompletion=completion.paths),
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Compact the named table now, even if it does not need it.")
    ] = False,
) -> None:
    """Run housekeeping once: update asynchronous indexes, merge, compact, collect garbage.

    Changes no row."""
    with cli.database() as db:
        if compact:
            if path is None:
                raise typer.BadParameter("name the table to compact", param_hint="PATH")
            db.compact(path)
        report = dataclasses.asdict(db.maintain(path))
    if compact and path is not None and path not in report["compacted"]:
        report["compacted"].insert(0, "/" + path.strip("/"))

    def tell() -> None:
        for name in ("followed", "merged", "compacted"):
            if report[name]:
                cli.output.line(f"{name} {', '.join(report[name])}")
        files, orphans = count(report["removed_files"], "file"), count(report["removed_orphans"], "orphan")
        cli.output.line(f"removed {files} and {orphans}")

    cli.output.result(report, tell)
