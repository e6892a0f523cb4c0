"""``token``: create, list and revoke tokens of the service."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.options import CARE, Group, command, example_text
from strandline.cli.session import Cli
from strandline.cli.values import moment
from strandline.sql.durations import parse_period

if TYPE_CHECKING:
    from strandline.api.access import TokenInfo


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Create, list and revoke tokens of the service.",
        epilog=example_text("strandline token create --role operate --path /sales nightly-job"),
        no_args_is_help=True,
        cls=Group,
    )
    app.add_typer(group, name="token", rich_help_panel=CARE)
    run = "strandline token"
    command(group, "create", example=f"{run} create --role operate --path /sales --expires 30d nightly-job")(
        create
    )
    command(group, "list", example=f"{run} list")(list_)
    command(group, "revoke", example=f"{run} revoke ID", quiet=True)(revoke)


def create(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="What the token is for.")],
    *,
    role: Annotated[
        str, typer.Option("--role", help="read, operate (also backups and restores) or admin.")
    ] = "read",
    paths: Annotated[
        list[str] | None,
        typer.Option("--path", metavar="PATH", help="Only paths at and below this one. Repeatable."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="The token ends after this time: 12h, 30d."),
    ] = None,
) -> None:
    """Create a token, and print it. It is shown only now: the catalog stores a hash of it."""
    with cli.database() as db:
        made = db.create_token(
            name, role=role, paths=paths, expires=None if expires is None else parse_period(expires)
        )
    cli.output.result(body_of(made), lambda: cli.output.line(made.token))


def list_(cli: Cli) -> None:
    """List the tokens, oldest first, without their secrets."""
    with cli.database() as db:
        found = db.tokens()
    columns = ("id", "name", "role", "paths", "created", "state")
    rows = [
        (t.id, t.name, t.role, ", ".join(t.paths or ("all",)), moment(t.created), _state(t)) for t in found
    ]
    cli.output.result([body_of(t) for t in found], lambda: cli.output.table(columns, rows))


def revoke(
    cli: Cli, token: Annotated[str, typer.Argument(metavar="ID", help="The id of the token, as listed.")]
) -> None:
    """Revoke a token, and end its browser sessions."""
    with cli.database() as db:
        gone = db.revoke_token(token)
    cli.output.result(body_of(gone), lambda: cli.output.note(f"the token {gone.name} is revoked"))


def body_of(token: TokenInfo) -> dict[str, Any]:
    """Return a token for JSON."""
    times = ("created", "expires", "revoked")
    return {**asdict(token), **{name: moment(getattr(token, name)) for name in times}}


def _state(token: TokenInfo) -> str:
    if token.revoked is not None:
        return f"revoked {moment(token.revoked)}"
    return "valid" if token.expires is None else f"until {moment(token.expires)}"
