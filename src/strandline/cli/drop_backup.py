"""``drop-backup``: remove a backup and the increments that build on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, BackupArgument, CollectionArgument, Confirm, command
from strandline.cli.session import Cli
from strandline.cli.values import size

if TYPE_CHECKING:
    from strandline.api.result import Result
    from strandline.sql.statements import DropBackup, Prune


def register(app: typer.Typer) -> None:
    command(
        app,
        "drop-backup",
        BACK_UP_AND_RESTORE,
        example="strandline drop-backup nightly BACKUP --confirm",
        quiet=True,
    )(drop_backup)


def drop_backup(
    cli: Cli,
    collection: CollectionArgument,
    backup: BackupArgument,
    confirm: Confirm = False,
) -> None:
    """Remove a backup and the increments that build on it.

    Without --confirm it is a dry run: it lists the backups that would be removed, and the bytes freed."""
    from strandline.sql.statements import DropBackup

    run_removal(cli, DropBackup(collection, backup, confirm))


def run_removal(cli: Cli, statement: DropBackup | Prune) -> None:
    """Run a statement that removes backups. Without ``confirm``, print its plan (a dry run)."""
    from strandline.api.execute import run_statement
    from strandline.cli.operations import tell_operation

    if cli.service is not None:
        from strandline.cli.remote import remove_at_service

        remove_at_service(cli, statement)
        return
    with cli.database() as db:
        result = run_statement(db, statement)
        done = None if result.operation_id is None else db.operation(result.operation_id)
    if done is not None:
        tell_operation(cli, done)
    else:
        _tell_plan(cli, result)


def _tell_plan(cli: Cli, result: Result) -> None:
    *rows, (_, _, _, freed) = result.rows()
    backups = [dict(zip(result.columns, row, strict=True)) for row in rows]

    def tell() -> None:
        shown = [(*row, "" if held is None else size(held)) for *row, held in rows]
        cli.output.table(("action", "backup", "reason", "size"), shown, count=False)
        cli.output.line(f"{size(freed)} would become free; nothing is removed without --confirm")

    cli.output.result({"backups": backups, "bytes_freed": freed}, tell)
