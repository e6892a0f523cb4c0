"""``attach``: add the backups of a repository to this warehouse as a backup collection."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, command
from strandline.cli.session import Cli


def register(app: typer.Typer) -> None:
    command(app, "attach", BACK_UP_AND_RESTORE, example="strandline attach /mnt/backups --as nightly")(attach)


def attach(
    cli: Cli,
    url: Annotated[str, typer.Argument(metavar="URL", help="The repository: a folder or a URL.")],
    *,
    name: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", help="Name of the collection (default: the name in its backups)."
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Make this warehouse the only one that adds backups to the repository. Also works if the "
            "repository is attached already.",
        ),
    ] = False,
    encryption: Annotated[
        bool | None,
        typer.Option(
            "--encryption/--no-encryption",
            help="Refuse a repository that is not encrypted, or one that is. If a key is configured, a "
            "repository without encryption is refused unless --no-encryption is given.",
        ),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option("--repository", metavar="ID", help="Refuse a repository with another id."),
    ] = None,
) -> None:
    """Attach a repository, to list and restore its backups.

    The catalog that the backups were taken with is not needed."""
    from strandline.api.backups import collection_in
    from strandline.api.execute import run_statement
    from strandline.backups.collection import repository_id
    from strandline.cli.statements import place, settings_of
    from strandline.sql.statements import AttachBackupCollection
    from strandline.storage.repository_marker import Expected

    where = place(url)
    expected = Expected(encryption, None if repository is None else repository_id("--repository", repository))
    settings = settings_of(TAKE_OVER=take_over, ENCRYPTION=encryption, REPOSITORY=expected.id)
    with cli.database() as db:
        collection = name or collection_in(db, where, expected)
        result = run_statement(db, AttachBackupCollection(collection, where, settings))
    columns, rows = result.columns, result.rows()

    def tell() -> None:
        cli.output.line(f"attached {where} as {collection}")
        cli.output.table(columns, rows)

    backups = [dict(zip(columns, row, strict=True)) for row in rows]
    cli.output.result({"collection": collection, "repository": where, "backups": backups}, tell)
