"""``audit``: show who changed what through the service."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from strandline.cli.options import CARE, command
from strandline.cli.session import Cli
from strandline.cli.values import moment, since_of


def register(app: typer.Typer) -> None:
    command(app, "audit", CARE, example="strandline audit --since 24h --limit 20")(audit)


def audit(
    cli: Cli,
    *,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only entries since then: 24h, 7d or a time."),
    ] = None,
    principal: Annotated[
        str | None,
        typer.Option("--principal", metavar="NAME", help="Only entries of the token with this name."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="NUMBER", min=1, max=1000, help="At most this many entries.")
    ] = 100,
) -> None:
    """Show changes through the service, and changes of tokens, latest first."""
    with cli.database() as db:
        found = db.audit(since=None if since is None else since_of(since), principal=principal, limit=limit)
    columns = ("time", "who", "from", "action", "target", "result", "operation")
    rows = [
        (
            moment(e.time),
            e.principal,
            e.remote,
            e.action,
            e.target,
            e.result or "unknown",
            e.operation_id or "",
        )
        for e in found
    ]
    cli.output.result(
        [{**asdict(e), "time": moment(e.time)} for e in found], lambda: cli.output.table(columns, rows)
    )
