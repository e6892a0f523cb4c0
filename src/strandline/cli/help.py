"""``help``: print the help of a command."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import START_HERE, Command, example_text
from strandline.errors import InvalidArgument
from strandline.names import did_you_mean


def register(app: typer.Typer) -> None:
    epilog = example_text("strandline help backup")
    app.command("help", rich_help_panel=START_HERE, cls=Command, epilog=epilog)(help_)


def help_(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(help="A command, such as backup.")] = None,
) -> None:
    """Show the help of a command, or the list of commands."""
    at = context.find_root()
    for name in command or ():
        known = getattr(at.command, "commands", {})
        if name not in known:
            raise InvalidArgument(
                f"there is no command {name!r} of {at.command_path}",
                did_you_mean(name, known) or f"See: {at.command_path} --help",
            )
        at = typer.Context(known[name], info_name=name, parent=at)
    typer.echo(at.get_help(), nl=False)
