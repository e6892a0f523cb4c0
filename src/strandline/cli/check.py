"""``check``: compare tables and backups with their recorded digests."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli import completion
from strandline.cli.options import CARE, command
from strandline.cli.session import Cli
from strandline.errors import Corrupted
from strandline.names import count

if TYPE_CHECKING:
    from strandline.api import Database


def register(app: typer.Typer) -> None:
    command(app, "check", CARE, example="strandline check /orders", quiet=True)(check)


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
            help="Check the backups of a collection instead of tables.",
            autocompletion=completion.collections,
        ),
    ] = None,
) -> None:
    """Recompute the digests of tables and indexes, and compare them with the recorded ones.

    Exit code 11 if they differ."""
    if collection is not None and cli.service is not None:
        from strandline.cli.remote import verify_at_service

        verify_at_service(cli, collection)
        return
    with cli.database() as db:
        if collection is not None:
            problems = [dataclasses.asdict(problem) for problem in db.verify(collection)]
            reports: list[dict[str, Any]] = [
                {"collection": collection, "ok": not problems, "problems": problems}
            ]
        else:
            reports = [db.check(path).to_dict() for path in paths or _all_tables(db)]
    broken = [report for report in reports if not report["ok"]]
    cli.output.result(reports, lambda: _tell_reports(cli, reports))
    if broken:
        found = sum(len(report["problems"]) for report in broken)
        raise Corrupted(
            f"{count(found, 'problem')} found in {', '.join(_name(report) for report in broken)}",
            "Restore the table from a backup. See strandline restore --help.",
        )


def _name(report: dict[str, Any]) -> str:
    return str(report.get("path") or report.get("collection"))


def _tell_reports(cli: Cli, reports: list[dict[str, Any]]) -> None:
    for report in reports:
        verdict = "ok" if report["ok"] else count(len(report["problems"]), "problem")
        about = [
            count(report["rows"], "row") if "rows" in report else "",
            f"digest {report['digest']}" if "digest" in report else "",
        ]
        cli.output.line(f"{_name(report)}: {verdict}" + "".join(f", {text}" for text in about if text))
        for problem in report["problems"]:
            keys = (
                f" (for example {', '.join(str(k) for k in problem['keys'])})" if problem.get("keys") else ""
            )
            cli.output.line(f"  {problem['kind']} in {problem['path']}: {problem['message']}{keys}")
    if not reports:
        cli.output.line("there is no table to check")


def _all_tables(db: Database) -> Iterator[str]:
    from strandline.api.execute import run_statement
    from strandline.sql.statements import ShowTables

    for path, _ in run_statement(db, ShowTables()):
        yield path
