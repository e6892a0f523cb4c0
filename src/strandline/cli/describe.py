"""``describe``: all that the catalog knows about a path."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from strandline.cli.options import LOOK_AROUND, PathArgument, command
from strandline.cli.session import Cli
from strandline.cli.values import owned_by, size

if TYPE_CHECKING:
    from strandline.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "describe", LOOK_AROUND)(describe)


def describe(cli: Cli, path: PathArgument) -> None:
    """Tell what there is to know about a path: its version and state; for a table columns, indexes, rows and
    digest."""
    with cli.database() as db:
        found = db.describe(path)
    cli.output.result(found, lambda: tell_description(cli.output, found))


def tell_description(output: Output, found: dict[str, Any]) -> None:
    from strandline.model import index_words

    columns, indexes = found.get("columns"), found.get("indexes")
    parts = {"columns", "indexes"} if found["type"] == "table" else set()
    output.fields(
        (name, _shown(name, value))
        for name, value in found.items()
        if name not in parts and value is not None
    )
    if found["type"] != "table":
        return
    output.line()
    output.table(
        ("column", "type", "not null"),
        [(c["name"], c["type"], c["not_null"]) for c in columns or ()],
        count=False,
    )
    if indexes:
        output.line()
        output.table(
            ("index", "kind", "on", "cover", "version"),
            [
                (
                    i["name"],
                    index_words(i["kind"], i["unique"]),
                    ", ".join(i["columns"]),
                    ", ".join(i["cover"]),
                    i["version"],
                )
                for i in indexes
            ],
            count=False,
        )


def _shown(name: str, value: Any) -> Any:
    if name == "owner" and isinstance(value, dict):
        return owned_by(value, time.time())
    return size(value) if name == "bytes" else value
