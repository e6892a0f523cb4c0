"""``operations``: list, get, wait, cancel, forget."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli import completion
from strandline.cli.options import BACK_UP_AND_RESTORE, Group, command, example_text
from strandline.cli.progress import follow, name_of, took, words
from strandline.cli.session import Cli
from strandline.cli.values import duration, format_owner, moment, since_of, size
from strandline.names import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.api.progress import OperationInfo
    from strandline.catalog.part_progress import ShardInfo, StageInfo

SHOWN = 100
"""Maximum number of shards shown without ``--all``."""

OperationId = Annotated[
    str, typer.Argument(metavar="ID", help="The operation's id.", autocompletion=completion.operations)
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="List operations, wait for them, cancel and forget them.",
        epilog=example_text("strandline operations list --state failed"),
        no_args_is_help=True,
        cls=Group,
    )
    app.add_typer(group, name="operations", rich_help_panel=BACK_UP_AND_RESTORE)
    run = "strandline operations"
    command(group, "list", example=f"{run} list --kind backup --since 7d")(list_)
    command(group, "get", example=f"{run} get ID --all")(get)
    command(group, "wait", example=f"{run} wait ID --timeout 600", quiet=True)(wait)
    command(group, "cancel", example=f"{run} cancel ID")(cancel)
    command(group, "forget", example=f"{run} forget --failed", quiet=True)(forget)


def list_(
    cli: Cli,
    *,
    state: Annotated[
        str | None, typer.Option("--state", help="Only operations in this state, such as failed or running.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="Only operations of this kind, such as backup or restore.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only operations that started since then: 24h, 7d, or 2026-11-15T08:00Z.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="NUMBER", min=1, help="Only the last ones, at most this many."),
    ] = None,
) -> None:
    """List the operations that are not forgotten, oldest first."""
    began = None if since is None else since_of(since)
    with cli.database() as db:
        found = db.operations(state=state, kind=kind, since=began, limit=limit)
    columns = ("id", "kind", "state", "percent", "created", "progress")
    rows = [(o.id, o.kind, o.state, round(o.percent), moment(o.created), words(o)) for o in found]
    cli.output.result([body_of(o) for o in found], lambda: cli.output.table(columns, rows))


def get(
    cli: Cli,
    operation: OperationId,
    all_: Annotated[
        bool, typer.Option("--all", help="Show all shards. By default, only those that matter most now.")
    ] = False,
) -> None:
    """Show one operation in detail: its process, stages, shards and errors."""
    with cli.database() as db:
        found = db.operation(operation)
        shards = found.shards if all_ else found.first_shards(SHOWN)
        cli.output.result(body_of(found) | detail_of(found, shards), lambda: _tell_all(cli, found, shards))


def detail_of(operation: OperationInfo, shards: Sequence[ShardInfo]) -> dict[str, Any]:
    """Return the details of an operation that only ``get`` shows, for JSON."""
    return {
        "owner": operation.owner,
        "seconds": max(0.0, (operation.ended or time.time()) - operation.created),
        "stages": operation.stages,
        "shards": [{**asdict(shard), "since": moment(shard.since)} for shard in shards],
    }


def _tell_all(cli: Cli, operation: OperationInfo, shards: Sequence[ShardInfo]) -> None:
    now = time.time()
    tell_operation(cli, operation)
    if operation.owner is not None:
        cli.output.fields([("carried out", format_owner(asdict(operation.owner), now))])
    if operation.stages:
        cli.output.line()
        cli.output.table(_STAGE, [_stage_row(stage) for stage in operation.stages], count=False)
    if shards:
        cli.output.line()
        cli.output.table(_SHARD, [_shard_row(shard, now) for shard in shards], count=False)
        if len(shards) < operation.parts:
            cli.output.line(f"({len(shards)} of {operation.parts} are shown; --all shows the others)")
    for shard in shards:
        for number, failed in enumerate(shard.errors, start=1):
            where = "" if shard.increment is None else f"increment {shard.increment}, "
            cli.output.line(
                f"{where}{name_of(shard)}, try {number}, {moment(failed.time)} in {failed.process}: "
                f"{failed.message} [{failed.code}]"
            )


_STAGE = ("stage", "increment", "done", "parts", "bytes", "retries", "took")
_SHARD = ("increment", "path", "shard", "kind", "state", "try", "since", "took", "process")


def _stage_row(s: StageInfo) -> tuple[Any, ...]:
    took = "" if s.seconds is None else duration(s.seconds)
    return s.stage, _or_blank(s.increment), s.parts_done, s.parts, size(s.bytes), s.retries, took


def _shard_row(s: ShardInfo, now: float) -> tuple[Any, ...]:
    since = moment(s.since)
    values = (s.increment, s.path, s.shard, s.kind, s.state, s.attempt, since, _took(s, now), s.process)
    return tuple(map(_or_blank, values))


def _or_blank(value: Any) -> Any:
    return "" if value is None else value


def _took(shard: ShardInfo, now: float) -> str:
    if shard.seconds is not None:
        return duration(shard.seconds)
    in_progress = shard.state == "in progress" and shard.since is not None
    return duration(max(0.0, now - (shard.since or now))) if in_progress else ""


def wait(
    cli: Cli,
    operation: OperationId,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Stop waiting after this time.")
    ] = None,
) -> None:
    """Wait for an operation and show its progress.

    An operation whose process has died is continued by this one."""
    with cli.database() as db:
        found = follow(cli, db, operation) if timeout is None else db.wait(operation, timeout)
    tell_operation(cli, found)


def cancel(cli: Cli, operation: OperationId) -> None:
    """Cancel a running operation and undo what it has done."""
    with cli.database() as db:
        found = db.cancel(operation)
    tell_operation(cli, found)


def forget(
    cli: Cli,
    operation: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The operation's id.", autocompletion=completion.operations),
    ] = None,
    *,
    failed: Annotated[bool, typer.Option("--failed", help="Forget all failed operations.")] = False,
) -> None:
    """Remove the record of an operation that has ended, or of all failed ones.

    The tables and backups that they made stay."""
    with cli.database() as db:
        number = db.forget(operation, failed=failed)
    if operation is not None:
        cli.output.result({"forgotten": operation}, lambda: cli.output.line(f"forgot operation {operation}"))
        return
    cli.output.result(
        {"forgotten_failed": number},
        lambda: cli.output.line(f"forgot {count(number, 'operation')} that had failed"),
    )


def body_of(operation: OperationInfo) -> dict[str, Any]:
    """Return an operation for JSON."""
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


def _format_outcome(name: str, value: Any) -> Any:
    """Return a value of an operation's result for display on one line."""
    if name == "replaced":
        return ", ".join(f"{path} (kept as {kept})" for path, kept in value.items())
    if name == "to_drop":
        return "; ".join(value)  # SQL that can be run as it is.
    if name == "bytes_verified":
        return moment(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return size(value) if name == "bytes" else value


def tell_operation(cli: Cli, operation: OperationInfo) -> None:
    """Print an operation with its result. Its warnings are printed even with ``--quiet``."""

    def tell() -> None:
        error = operation.error or {}
        result = {name: _format_outcome(name, value) for name, value in (operation.result or {}).items()}
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
    for name in ("warning", "not_removed"):
        if cli.output.quiet and (said := (operation.result or {}).get(name)):
            cli.output.warn(f"warning: {said}")
