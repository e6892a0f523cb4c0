"""``check``, ``maintain`` and ``metrics``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli import completion
from strandline.cli.options import command
from strandline.cli.session import Cli
from strandline.cli.values import count
from strandline.errors import Corrupted

if TYPE_CHECKING:
    from strandline.api import Database

PANEL = "Care"


def register(app: typer.Typer) -> None:
    command(app, "check", PANEL)(check)
    command(app, "maintain", PANEL)(maintain)
    command(app, "metrics", PANEL)(metrics)


def check(
    cli: Cli,
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Tables to check (default: all).", autocompletion=completion.paths),
    ] = None,
    collection: Annotated[
        str | None,
        typer.Option(
            "--collection",
            "-c",
            help="Check the backups of a collection instead.",
            autocompletion=completion.collections,
        ),
    ] = None,
) -> None:
    """Recompute digests and indexes from the data itself and compare them with what was recorded. Exit code
    11 if they differ."""
    with cli.database() as db:
        if collection is not None:
            problems = [dataclasses.asdict(problem) for problem in db.verify(collection)]
            reports: list[dict[str, Any]] = [
                {"collection": collection, "ok": not problems, "problems": problems}
            ]
        else:
            reports = [db.check(path).to_dict() for path in paths or _tables(db, "/")]
    broken = [report for report in reports if not report["ok"]]
    cli.output.result(reports, lambda: _tell_reports(cli, reports))
    if broken:
        found = sum(len(report["problems"]) for report in broken)
        raise Corrupted(
            f"{count(found, 'problem')} found in {', '.join(str(r.get('path') or r.get('collection')) for r in broken)}",
            "Restore the table from a backup; strandline restore --help tells how.",
        )


def _tell_reports(cli: Cli, reports: list[dict[str, Any]]) -> None:
    for report in reports:
        name = report.get("path") or report.get("collection")
        verdict = "ok" if report["ok"] else count(len(report["problems"]), "problem")
        about = [
            f"{report['rows']:,} rows" if "rows" in report else "",
            f"digest {report['digest']}" if "digest" in report else "",
        ]
        cli.output.line(f"{name}: {verdict}" + "".join(f", {text}" for text in about if text))
        for problem in report["problems"]:
            keys = (
                f" (for example {', '.join(str(k) for k in problem['keys'])})" if problem.get("keys") else ""
            )
            cli.output.line(f"  {problem['kind']} in {problem['path']}: {problem['message']}{keys}")
    if not reports:
        cli.output.line("there is no table to check")


def _tables(db: Database, path: str) -> Iterator[str]:
    for entry in db.ls(path):
        if entry.type == "table":
            yield entry.path
        elif entry.type == "directory" and entry.path != "/.backups":
            yield from _tables(db, entry.path)


def maintain(
    cli: Cli,
    path: Annotated[
        str | None,
        typer.Argument(help="A table or a directory (default: all).", autocompletion=completion.paths),
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Compact the named table now, whatever its state.")
    ] = False,
) -> None:
    """One round of housekeeping: follow asynchronous indexes, merge, compact, collect garbage. Changes no
    row."""
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
        cli.output.line(
            f"removed {count(report['removed_files'], 'file')} and {count(report['removed_orphans'], 'orphan')}"
        )

    cli.output.result(report, tell)


def metrics(cli: Cli) -> None:
    """Show the database's metrics, in the text format of Prometheus or as JSON."""
    with cli.database() as db:
        text = db.metrics()
    samples: list[dict[str, Any]] = []
    if cli.output.as_json:
        from prometheus_client.parser import text_string_to_metric_families

        samples = [
            {"name": s.name, "labels": s.labels, "value": s.value}
            for family in text_string_to_metric_families(text)
            for s in family.samples
        ]
    cli.output.result(samples, lambda: cli.output.line(text.rstrip("\n")))
