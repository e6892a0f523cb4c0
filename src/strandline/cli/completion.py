"""Tab completion of paths, collections, backups and operations in bash, zsh and fish.

If an error occurs, completion offers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from strandline.cli.session import Cli
from strandline.errors import StrandlineError
from strandline.names import BACKUPS

if TYPE_CHECKING:
    from strandline.api import Database

COLLECTIONS = f"{BACKUPS}/collections"


def paths(context: typer.Context, incomplete: str) -> list[str]:
    """Return the paths one level below the typed directory."""
    directory = incomplete.rpartition("/")[0]

    def find(db: Database) -> Iterable[str]:
        slash = "" if incomplete and not incomplete.startswith("/") else "/"
        return (slash + entry.path.lstrip("/") for entry in db.ls(directory or "/"))

    return [path for path in _ask(context, find) if path.startswith(incomplete)]


SHOWN = 200
"""Maximum number of operations that completion offers. It offers the newest ones."""


def collections(context: typer.Context, incomplete: str) -> list[str]:
    return [
        name
        for name in _ask(context, lambda db: (e.name for e in db.ls(COLLECTIONS)))
        if name.startswith(incomplete)
    ]


def backups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the backups of the collection on the command line."""
    collection = context.params.get("collection")

    def find(db: Database) -> Iterable[str]:
        return (e.name for e in db.ls(f"{COLLECTIONS}/{collection}") if e.type == "backup")

    return [name for name in _ask(context, find) if name.startswith(incomplete)]


def schedules(context: typer.Context, incomplete: str) -> list[str]:
    found = _ask(context, lambda db: (each.name for each in db.schedules()))
    return [name for name in found if name.startswith(incomplete)]


def dropped(context: typer.Context, incomplete: str) -> list[str]:
    """Return the tables and collections in the bin."""

    def find(db: Database) -> Iterable[str]:
        return (str(name) for name, *_ in db.sql("SHOW BIN").rows())

    return [name for name in _ask(context, find) if name.startswith(incomplete)]


def operations(context: typer.Context, incomplete: str) -> list[str]:
    return [
        name
        for name in _ask(context, lambda db: (o.id for o in db.operations(limit=SHOWN)))
        if name.startswith(incomplete)
    ]


def _ask(context: typer.Context, find: Callable[[Database], Iterable[str]]) -> list[str]:
    given = [*_parse_line(context)]
    cli = Cli(warehouse=given[0], catalog=given[1])
    try:
        with cli.database() as db:
            return list(find(db))
    except (StrandlineError, OSError):
        return []


def _parse_line(context: typer.Context) -> tuple[str | None, str | None]:
    """Return the warehouse and the catalog options of the unfinished command line."""
    found: dict[str, str | None] = {"warehouse": None, "catalog": None}
    at: typer.Context | None = context
    while at is not None:
        for name, value in found.items():
            found[name] = value or at.params.get(name)
        at = at.parent  # type: ignore[assignment]
    return found["warehouse"], found["catalog"]
