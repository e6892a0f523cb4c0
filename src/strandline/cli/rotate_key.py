"""``rotate-key``: another key opens an encrypted repository."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, command
from strandline.cli.session import Cli


def register(app: typer.Typer) -> None:
    command(app, "rotate-key", BACK_UP_AND_RESTORE)(rotate_key)


def rotate_key(
    cli: Cli,
    url: Annotated[str, typer.Argument(metavar="URL", help="The repository: a folder or a URL.")],
    file: Annotated[
        str | None, typer.Option("--new-key-file", metavar="FILE", help="A file with the new key.")
    ] = None,
    env: Annotated[
        str | None, typer.Option("--new-key-env", metavar="NAME", help="A variable that holds the new key.")
    ] = None,
    command_: Annotated[
        str | None,
        typer.Option("--new-key-command", metavar="COMMAND", help="A command that prints the new key."),
    ] = None,
) -> None:
    """Let a new key open an encrypted repository, and the present one no more. No data is written again. The
    present key is where STRANDLINE_REPOSITORY_KEY_FILE, _ENV or _COMMAND says."""
    from strandline.backups.repository import rotate_key as rotate
    from strandline.cli.statements import place
    from strandline.settings import Settings

    new = Settings(repository_key_file=file, repository_key_env=env, repository_key_command=command_)
    where = place(url)
    done = rotate(where, cli.configuration.settings(), new)

    def tell() -> None:
        cli.output.line(f"the new key opens {where}, and the old one no more")
        for name in done.left:
            cli.output.note(f"{name} could not be removed: with the old key it still tells the master key")

    cli.output.result({"repository": where, "generation": done.generation, "left": list(done.left)}, tell)
