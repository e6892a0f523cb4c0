"""``attach``: the backups of a repository become those of a collection here."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.options import BACK_UP_AND_RESTORE, command
from strandline.cli.session import Cli
from strandline.sql.tokens import quote


def register(app: typer.Typer) -> None:
    command(app, "attach", BACK_UP_AND_RESTORE)(attach)


def attach(
    cli: Cli,
    url: Annotated[str, typer.Argument(metavar="URL", help="The repository: a folder or a URL.")],
    *,
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="What to call the collection. Else as its backups say."),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="From now on this warehouse adds backups to it, and no other one does; also if it is "
            "attached already.",
        ),
    ] = False,
    encryption: Annotated[
        bool | None,
        typer.Option(
            "--encryption/--no-encryption",
            help="Refuse a repository that is not encrypted, or that is. If a key is configured, one that is "
            "not encrypted is refused unless --no-encryption is given.",
        ),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option("--repository", metavar="ID", help="Refuse a repository that has another id."),
    ] = None,
) -> None:
    """Attach a repository: list and restore the backups in it without the catalog they were taken with."""
    from strandline.api.backups import collection_in
    from strandline.backups.collection import repository_id
    from strandline.cli.statements import place, with_settings
    from strandline.sql.constants import constant
    from strandline.storage.marker import Expected

    where = place(url)
    expected = Expected(encryption, None if repository is None else repository_id("--repository", repository))
    settings = ["TAKE_OVER = 'true'"] if take_over else []
    settings += [] if encryption is None else [f"ENCRYPTION = '{str(encryption).lower()}'"]
    settings += [] if expected.id is None else [f"REPOSITORY = '{expected.id}'"]
    with cli.database() as db:
        collection = name or collection_in(db, where, expected)
        text = f"ATTACH BACKUP COLLECTION {quote(collection)} FROM {constant(where)}"
        result = db.sql(text + with_settings(settings))
    columns, rows = result.columns, result.rows()

    def tell() -> None:
        cli.output.line(f"attached {where} as {collection}")
        cli.output.table(columns, rows)

    backups = [dict(zip(columns, row, strict=True)) for row in rows]
    cli.output.result({"collection": collection, "repository": where, "backups": backups}, tell)
