"""``rotate-key``: replace the key of an encrypted repository."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, command
from strandline.cli.session import Cli


def register(app: typer.Typer) -> None:
    command(
        app,
        "rotate-key",
        BACK_UP_AND_RESTORE,
        example="strandline rotate-key /mnt/backups --new-key-file new.key",
    )(rotate_key)


def rotate_key(
    cli: Cli,
    url: Annotated[str, typer.Argument(metavar="URL", help="The repository: a folder or a URL.")],
    *,
    file: Annotated[
        str | None, typer.Option("--new-key-file", metavar="FILE", help="A file with the new key.")
    ] = None,
    env: Annotated[
        str | None,
        typer.Option("--new-key-env", metavar="NAME", help="An environment variable with the new key."),
    ] = None,
    command_: Annotated[
        str | None,
        typer.Option("--new-key-command", metavar="COMMAND", help="A command that prints the new key."),
    ] = None,
    new_master: Annotated[
        bool,
        typer.Option(
            "--new-master",
            help="Encrypt later backups with a new master key, which a leaked copy of the old keys lacks.",
        ),
    ] = False,
) -> None:
    """Replace the repository key; the current key stops working.

    The current key is read as configured by STRANDLINE_REPOSITORY_KEY_FILE, _ENV or _COMMAND. No data is
    rewritten. If the current key may have leaked, add --new-master. Otherwise an attacker with the current
    key and a copy of the repository's folder "keys" can read later backups, too."""
    from strandline.backups.repository.rotate_key import rotate_key as rotate
    from strandline.cli.statements import place
    from strandline.settings import Settings

    new = Settings(repository_key_file=file, repository_key_env=env, repository_key_command=command_)
    where = place(url)
    done = rotate(where, cli.configuration.settings(), new, new_master=new_master)

    def tell() -> None:
        cli.output.line(f"the key of {where} is replaced; the old key no longer works")
        if new_master:
            cli.output.line("later backups are encrypted with a new master key; earlier ones are not")
        for name in done.left:
            cli.output.note(
                f"{name} could not be removed: the old key can still decrypt the master key in it"
            )

    answer = {"repository": where, "generation": done.generation, "new_master": new_master}
    cli.output.result({**answer, "left": list(done.left)}, tell)
