"""``operations``: list, get, wait, cancel, forget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli import completion
from strandline.cli.options import BACK_UP_AND_RESTORE, command
from strandline.cli.progress import follow, took, words
from strandline.cli.session import Cli
from strandline.cli.values import moment, size

if TYPE_CHECKING:
    from strandline.api.progress import OperationInfo

OperationId = Annotated[
    str, typer.Argument(metavar="ID", help="The operation's id.", autocompletion=completion.operations)
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Look at long operations, wait for them, cancel and forget them.", no_args_is_help=True
    )
    app.add_typer(group, name="operations", rich_help_panel=BACK_UP_AND_RESTORE)
    for name, function in (
        ("list", list_),
        ("get", get),
        ("wait", wait),
        ("cancel", cancel),
        ("forget", forget),
    ):
        command(group, name)(function)


def list_(cli: Cli) -> None:
    """List the operations that are not forgotten, oldest first."""
    with cli.database() as db:
        found = db.operations()
    columns = ("id", "kind", "state", "percent", "created", "progress")
    rows = [(o.id, o.kind, o.state, round(o.percent), moment(o.created), words(o)) for o in found]
    cli.output.result([body_of(o) for o in found], lambda: cli.output.table(columns, rows))


def get(cli: Cli, operation: OperationId) -> None:
    """Tell all about one operation."""
    with cli.database() as db:
        found = db.operation(operation)
    tell_operation(cli, found)


def wait(
    cli: Cli,
    operation: OperationId,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Give up waiting after this time.")
    ] = None,
) -> None:
    """Wait for an operation with its progress in sight. One whose process died is carried on here."""
    with cli.database() as db:
        found = follow(cli, db, operation) if timeout is None else db.wait(operation, timeout)
    tell_operation(cli, found)


def cancel(cli: Cli, operation: OperationId) -> None:
    """Cancel a running operation; what it had made is undone."""
    with cli.database() as db:
        found = db.cancel(operation)
    tell_operation(cli, found)


def forget(cli: Cli, operation: OperationId) -> None:
    """Remove the record of an operation that has ended. What it made stays."""
    with cli.database() as db:
        db.forget(operation)
    cli.output.result({"forgotten": operation}, lambda: cli.output.line(f"forgot operation {operation}"))


def body_of(operation: OperationInfo) -> dict[str, Any]:
    """An operation as JSON shows it."""
    return {
        "id": operation.id,
        "kind": operation.kind,
        "state": operation.state,
        "percent": operation.percent,
        "parts": operation.parts,
        "parts_done": operation.parts_done,
        "created": moment(operation.created),
        "ended": moment(operation.ended),
        "progress": operation.progress,
        "result": operation.result,
        "error": operation.error,
    }


def _shown(name: str, value: Any) -> Any:
    """What came of an operation, on a line."""
    if name == "replaced":
        return ", ".join(f"{path} (kept as {kept})" for path, kept in value.items())
    if name == "to_drop":
        return "; ".join(value)  # To be run as it is.
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return size(value) if name == "bytes" else value


def tell_operation(cli: Cli, operation: OperationInfo) -> None:
    def tell() -> None:
        error = operation.error or {}
        result = {name: _shown(name, value) for name, value in (operation.result or {}).items()}
        known = (
            ("operation", operation.id),
            ("kind", operation.kind),
            ("state", operation.state),
            ("percent", None if operation.state == "done" else operation.percent),
            ("progress", words(operation) or None),
            ("took", took(operation)),
            *result.items(),
            ("error", error.get("message")),
            ("hint", error.get("hint")),
        )
        cli.output.fields((name, value) for name, value in known if value not in (None, ""))

    cli.output.result(body_of(operation), tell)
