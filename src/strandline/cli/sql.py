"""``sql``: run a statement, a file, stdin, or the interactive shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from strandline.cli.options import WORK_WITH_DATA, command
from strandline.cli.session import Cli
from strandline.errors import InvalidArgument, Unavailable

Format = Literal["table", "json", "csv", "jsonl", "parquet"]


def register(app: typer.Typer) -> None:
    command(app, "sql", WORK_WITH_DATA, example='strandline sql "SELECT * FROM orders LIMIT 10"')(sql)


def sql(
    cli: Cli,
    statement: Annotated[
        str | None, typer.Argument(help="One or more statements, separated by ';' (default: the shell).")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Run the statements of a file; - is stdin."),
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="Output format of rows: a table, JSON (as --json), or the bytes of a file, streamed.",
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="NAME=VALUE",
            help="The value of the parameter :NAME: a SQL literal (5, NULL, '5'), or text. Repeatable.",
        ),
    ] = None,
    *,
    no_check: Annotated[
        bool,
        typer.Option(
            "--no-check",
            help="Create backup collections without checking their locations, for provisioning.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="On a terminal: drop backup collections without asking.")
    ] = False,
) -> None:
    """Run SQL: a statement, a file, or, on a terminal without either, an interactive shell.

    Consecutive statements that change rows are one commit. All statements are parsed before the first one
    runs, so a syntax error changes nothing."""
    if statement is not None and file is not None:
        raise InvalidArgument("a statement and a file are given", "Give only one of them.")
    text = statement if statement is not None else _text_of(file)
    cli.output.as_json = cli.output.as_json or format == "json"
    cli.output.encoding = None if format == "table" or format == "json" else format
    cli.yes, cli.check = yes, not no_check
    params = _params(param or [])
    if params is not None and text is None:
        raise InvalidArgument("parameters need a statement or a file", "Add one of them.")
    if cli.service is not None:
        from strandline.cli.remote import select_at_service

        select_at_service(cli, text, params)
        return
    with cli.database() as db:
        if text is None:
            from strandline.cli.shell import Shell

            Shell(cli, db).run()
            return
        from strandline.cli.statements import run_text

        run_text(cli, db, text, params=params)


def _params(given: list[str]) -> dict[str, Any] | None:
    if not given:
        return None
    from strandline.cli.parameters import values_of

    return values_of(given)


def _text_of(file: str | None) -> str | None:
    if file is None and sys.stdin.isatty():
        return None
    if file is None or file == "-":
        return sys.stdin.read()
    return read_file(file)


def read_file(file: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except OSError as error:
        raise Unavailable(
            f"the file {file} cannot be read: {error.strerror}", "Check its name and its rights."
        ) from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"the file {file} is not text in UTF-8", "Save it as UTF-8.") from None
