"""Run the statements of a text one by one, and print each result."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from strandline.api.execute import groups, run, run_statement
from strandline.api.result import moment
from strandline.cancellation import attend_work, phase
from strandline.cli.operations import tell_operation
from strandline.cli.output import SHOWN_ROWS, Output
from strandline.cli.progress import follow, leave_running, run_in_background
from strandline.cli.session import Cli
from strandline.cli.values import bytes_of, format_value, size
from strandline.errors import Cancelled, PreconditionFailed
from strandline.names import count
from strandline.sql import statements as st
from strandline.sql.parser import parse
from strandline.sql.tokens import quote

if TYPE_CHECKING:
    from strandline.api import Database
    from strandline.api.result import Result


def run_text(
    cli: Cli, db: Database, text: str, *, params: dict[str, Any] | None = None, stay: bool = False
) -> None:
    """Run all statements of ``text`` with ``params``.

    Args:
        stay: whether the process continues after the statements. If so, it keeps an open transaction, and
            carries out an operation that the user leaves running.
    """
    try:
        for group in groups(parse(text, params)):
            cli.output.answered = False
            run_group(cli, db, group, stay=stay)
    except BaseException:
        if not stay and db._transactions.current is not None:
            db._transactions.rollback()
            cli.output.note("The open transaction was rolled back.")
        raise
    if not stay and db._transactions.current is not None:
        db._transactions.rollback()
        cli.output.answered = False
        raise PreconditionFailed(
            "the statements end in an open transaction, which was rolled back", "End it with COMMIT."
        )


def run_group(cli: Cli, db: Database, group: Sequence[st.Statement], *, stay: bool = False) -> None:
    first = group[0]
    if isinstance(first, st.Backup | st.CopyBackup | st.Restore | st.CompactBackups) and not first.nowait:
        run_operation(cli, db, first, stay=stay)
        return
    if isinstance(first, st.DropBackupCollection):
        ask_before_drop(cli, db, first)
    if isinstance(first, st.CreateBackupCollection) and not cli.check:
        group = [replace(first, settings=(*first.settings, ("CHECK", "false")))]
    with db._guard():
        result = run(db, group)
    for warning in result.warnings:
        cli.output.note(f"warning: {warning}")
    if isinstance(first, st.DropBackupCollection) and result.operation_id is not None:
        tell_dropped(cli.output, result)
        return
    if isinstance(first, st.Begin | st.Rollback) and not cli.output.as_json:
        cli.output.line("a transaction is open" if isinstance(first, st.Begin) else "rolled back")
        return
    if _is_tree(first) and not cli.output.as_json:
        for line in plan_lines(result.rows()):
            cli.output.line(line)
        return
    tell_result(cli, result)


def ask_before_drop(cli: Cli, db: Database, statement: st.DropBackupCollection) -> None:
    """Ask on a terminal before a backup collection is dropped; scripts are not asked.

    Raises CANCELLED for any other answer than yes.
    """
    if cli.yes or cli.output.as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    from strandline.api.backups import about_to_drop

    going = about_to_drop(db, statement)
    if going is None:
        return  # The statement reports the missing collection.
    for line in _lines_about({**asdict(going), "until": moment(going.until)}, "would be"):
        cli.output.note(line)
    if not typer.confirm(f"Drop the backup collection {going.collection}?", err=True):
        raise Cancelled("nothing was dropped", "Answer y, or use --yes in a script.")


def tell_dropped(output: Output, result: Result) -> None:
    answer = dict(zip(result.columns, result.rows()[0], strict=True))

    def tell() -> None:
        output.line(f"operation {result.operation_id}")
        for line in _lines_about(answer, "is"):
            output.line(line)

    output.result(answer, tell)


def _lines_about(going: Mapping[str, Any], is_: str) -> Iterator[str]:
    """Yield lines about the consequences of dropping a backup collection."""
    backups = f"{count(going['backups'], 'backup')}, {size(going['bytes'])}"
    yield f"the backup collection {going['collection']} ({backups}) {is_} dropped"
    if going["repository"] is not None:
        yield f"the repository {going['repository']} keeps {count(going['kept'], 'backup')} of it"
    if going["unsent"]:
        yield f"not in the repository: {count(going['unsent'], 'backup')}"
    if going["until"] is None:
        yield "it cannot be brought back"
    else:
        undrop = f"UNDROP BACKUP COLLECTION {quote(going['collection'])}"
        yield f"it can be brought back until {format_value(going['until'])}: {undrop}"


def _is_tree(statement: st.Statement) -> bool:
    """Return whether the result of a statement is a plan, to be shown as a tree."""
    if isinstance(statement, st.ExplainStatement):
        return isinstance(statement.statement, st.Change | st.Export)
    return isinstance(statement, st.Explain) and not statement.mode


def plan_lines(steps: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield the steps of a plan as a tree."""
    for place, (level, what, name, details) in enumerate(steps):
        rest = [step[0] for step in steps[place + 1 :]]
        bars = ""
        for depth in range(1, level + 1):
            more = next((at == depth for at in rest if at <= depth), False)
            bars += ("├─ " if more else "└─ ") if depth == level else ("│  " if more else "   ")
        said = " ".join(filter(None, (what, name)))
        yield f"{bars}{said}: {details}" if details else f"{bars}{said}"


Operating: TypeAlias = "st.Backup | st.CopyBackup | st.Restore | st.CompactBackups"
"""Statements that start a long operation."""


def run_operation(cli: Cli, db: Database, statement: Operating, *, stay: bool = False) -> None:
    """Run a statement that starts an operation, and show its progress until it ends."""
    operation_id = run_statement(db, replace(statement, nowait=True)).operation_id
    assert operation_id is not None
    tell_operation(cli, follow(cli, db, operation_id, began=True, stay=stay))


def start_operation(cli: Cli, statement: Operating) -> None:
    """Run a command that starts an operation. With ``nowait``, a background process continues it."""
    if cli.service is not None:
        from strandline.cli.remote import run_at_service

        run_at_service(cli, statement, nowait=statement.nowait)
        return
    if not statement.nowait:
        with cli.database() as db:
            run_operation(cli, db, statement)
        return
    result: Result | None = None
    try:
        with cli.database() as db, attend_work():
            result = run_statement(db, statement)
    except KeyboardInterrupt:
        if result is None or result.operation_id is None:
            raise  # No operation was started.
        run_in_background(cli, result.operation_id)
        tell_result(cli, result)
        leave_running(cli, result.operation_id)
    assert result.operation_id is not None
    run_in_background(cli, result.operation_id)
    tell_result(cli, result)


def settings_of(
    max_rate: str | None = None, copies: int | None = None, **given: str | int | bool | None
) -> tuple[st.Setting, ...]:
    """Return the settings of a statement that were given. A setting that is None is left out.

    Args:
        max_rate: the limit of copying per second, such as ``50MB``.
        copies: the number of files to copy at a time.
        given: other settings by name.
    """
    rate = None if max_rate is None else bytes_of(max_rate)
    every = {**given, "MAX_BYTES_PER_SECOND": rate, "COPIES": copies}
    return tuple((name, value) for name, value in every.items() if value is not None)


def place(text: str) -> str:
    """Return a folder as an absolute path, for use in a statement; a URL unchanged."""
    return text if "://" in text else os.path.abspath(os.path.expanduser(text))


def tell_result(cli: Cli, result: Result) -> None:
    output = cli.output
    if output.encoding is not None:
        _tell_file(output, result)
        return
    if result.columns and result.operation_id is None:
        _tell_rows(output, result)
        return
    if result.operation_id is not None:
        output.result(
            {"operation_id": result.operation_id}, lambda: output.line(f"operation {result.operation_id}")
        )
        return
    answer: dict[str, Any] = {"step": result.step}
    said = "done" if result.step is None else f"done at step {result.step}"
    if result.rows_changed is not None:
        answer["rows_changed"] = result.rows_changed
        changed = count(result.rows_changed, "row")
        said = f"{changed} changed" if result.step is None else f"{changed} changed at step {result.step}"
    if result.warnings:
        answer["warnings"] = list(result.warnings)
    output.result(answer, lambda: output.line(said))


def _tell_file(output: Output, result: Result) -> None:
    """Write rows to stdout as a file; report other results on stderr."""
    if result.columns and result.operation_id is None:
        output.file(result.to_reader())
    else:
        output.note("done" if result.step is None else f"done at step {result.step}")


def _tell_rows(output: Output, result: Result) -> None:
    if output.as_json:
        output.rows(result.columns, result)
    elif result.is_here:
        output.table(result.columns, result.rows())
    elif output.is_terminal:
        rows = _await_outcome(
            result, SHOWN_ROWS + 1
        )  # One row more than shown, to know whether there are more.
        output.table(result.columns, rows[:SHOWN_ROWS], more=len(rows) > SHOWN_ROWS)
    else:
        output.table(result.columns, iter(result))


def _await_outcome(result: Result, limit: int) -> list[tuple[Any, ...]]:
    with attend_work(), phase("querying"):
        return result.rows(limit)
