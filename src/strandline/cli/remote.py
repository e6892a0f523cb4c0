"""Commands with ``--server``: statements of operations become requests to the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from strandline.cli.operations import tell_operation
from strandline.cli.progress import follow
from strandline.cli.session import Cli
from strandline.cli.statements import tell_result
from strandline.errors import Corrupted, Unsupported
from strandline.names import count
from strandline.sql import statements as st

if TYPE_CHECKING:
    from strandline.api.progress import OperationInfo
    from strandline.api.remote import RemoteDatabase


def run_at_service(cli: Cli, statement: st.Statement, *, nowait: bool = False) -> None:
    """Run the operation of a statement at the service; show its progress unless ``nowait``.

    Ctrl-C and the end of this process do not end the operation.
    """
    with cli.database() as db:
        info = start_at_service(cast("RemoteDatabase", db), statement)
        if nowait:
            cli.output.result({"operation_id": info.id}, lambda: cli.output.line(f"operation {info.id}"))
            return
        tell_operation(cli, follow(cli, db, info.id))


def select_at_service(cli: Cli, text: str | None, params: Any) -> None:
    """Run one SELECT at the service."""
    if text is None:
        raise Unsupported("the shell is not available over the service", "Give a SELECT, or --file FILE.")
    with cli.database() as db:
        found = cast("RemoteDatabase", db).sql(text, params)
        tell_result(cli, found)
    if found.truncated:
        cli.output.note("warning: the service has left out further rows; select fewer, or load them in parts")


def remove_at_service(cli: Cli, statement: st.DropBackup | st.Prune) -> None:
    """Remove backups at the service. Without ``confirm``, print what PRUNE would remove."""
    if statement.confirm:
        run_at_service(cli, statement)
        return
    if isinstance(statement, st.DropBackup):
        raise Unsupported(
            "the dry run of drop-backup is not available over the service",
            "Add --confirm to remove the backup.",
        )
    keep = None if statement.keep is None else str(statement.keep)
    with cli.database() as db:
        remote = cast("RemoteDatabase", db).collection(statement.collection)
        decisions = remote.preview_prune(**({} if keep is None else {"keep": keep}))
    rows = [("keep" if d.keep else "remove", d.backup, ", ".join(d.reasons)) for d in decisions]
    cli.output.result(decisions, lambda: cli.output.table(("action", "backup", "reason"), rows, count=False))


def verify_at_service(cli: Cli, collection: str, **given: Any) -> None:
    """Verify backups at the service; raise CORRUPTED if there are problems."""
    with cli.database() as db:
        started = cast("RemoteDatabase", db).collection(collection).verify(**given, wait=False)
        info = follow(cli, db, started.id)
    tell_operation(cli, info)
    problems = (info.result or {}).get("problems")
    if problems:
        raise Corrupted(f"{count(problems, 'problem')} found in the backups of {collection}")


def start_at_service(db: RemoteDatabase, statement: st.Statement) -> OperationInfo:
    """Start the operation of a statement at a service."""
    given: dict[str, Any]
    match statement:
        case st.Backup():
            given = {
                "incremental": statement.incremental and not statement.or_full,
                "full_if_needed": statement.or_full,
            }
            call = db.collection(statement.collection).backup
        case st.Restore():
            at = statement.at_backup or statement.at_step or statement.at_timestamp
            tables = {table.path: table.as_path or table.path for table in statement.tables}
            is_renamed = any(table.as_path for table in statement.tables)
            given = {"at": at, "tables": tables if is_renamed else list(tables), "into": statement.into}
            call = db.collection(statement.collection).restore
        case st.CompactBackups():
            given = {"to": statement.backup}
            if statement.increments:
                given["since"] = statement.first
            handle = db.collection(statement.collection)
            call = handle.merge_increments if statement.increments else handle.compact
        case st.CopyBackup():
            given = {"url": statement.url, "backup": statement.backup}
            call = db.collection(statement.collection).copy_to
        case st.DropBackup():
            given = {"name": statement.backup}
            call = db.collection(statement.collection).drop_backup
        case st.Prune():
            given = {"keep": None if statement.keep is None else str(statement.keep)}
            call = db.collection(statement.collection).prune
        case _:
            raise Unsupported(
                "this command is not available over the service",
                "Run it on a machine that can open the warehouse itself.",
            )
    settings = {name.lower(): value for name, value in getattr(statement, "settings", ())}
    wanted = {name: value for name, value in (given | settings).items() if value not in (None, [])}
    return call(**wanted, wait=False)  # type: ignore[no-any-return]
