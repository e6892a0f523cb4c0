"""``ls``, ``tree`` and ``describe``: what exists. Reads the catalog only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.completion import paths
from strandline.cli.options import command
from strandline.cli.session import Cli
from strandline.cli.values import size

if TYPE_CHECKING:
    from strandline.cli.output import Output

PANEL = "Look around"

PathArgument = Annotated[str, typer.Argument(help="A path such as /orders or /dir/t.", autocompletion=paths)]


def register(app: typer.Typer) -> None:
    command(app, "ls", PANEL)(ls)
    command(app, "tree", PANEL)(tree)
    command(app, "describe", PANEL)(describe)


def ls(
    cli: Cli,
    path: PathArgument = "/",
    long: Annotated[bool, typer.Option("--long", "-l", help="With version, rows and bytes.")] = False,
) -> None:
    """List what is directly below a path."""
    with cli.database() as db:
        entries = db.overview(path) if long else [entry._asdict() for entry in db.ls(path)]
    columns = ["name", "type", *(("version", "state", "rows", "bytes") if long else ())]
    cli.output.result(
        entries,
        lambda: cli.output.table(columns, [[entry[c] for c in columns] for entry in entries], count=False),
    )


def tree(
    cli: Cli,
    path: PathArgument = "/",
    depth: Annotated[
        int | None, typer.Option("--depth", "-d", min=1, help="Go down at most so many levels.")
    ] = None,
) -> None:
    """Draw what is below a path, at any depth."""
    with cli.database() as db:
        top = db.describe(path)
        entries = db.ls(path, depth)
    grown: dict[str, Any] = {"name": path, "type": top["type"], "path": top["path"], "children": []}
    nodes = {top["path"].rstrip("/"): grown}
    for entry in entries:
        nodes[entry.path] = {**entry._asdict(), "children": []}
        nodes[entry.path.rpartition("/")[0]]["children"].append(nodes[entry.path])

    def draw() -> None:
        cli.output.line(f"{grown['name']}  {grown['type']}")
        _draw(cli.output, grown["children"], "")

    cli.output.result(grown, draw)


def _draw(output: Output, children: list[dict[str, Any]], indent: str) -> None:
    for number, child in enumerate(children, start=1):
        last = number == len(children)
        output.line(f"{indent}{'└── ' if last else '├── '}{child['name']}  {child['type'].replace('_', ' ')}")
        _draw(output, child["children"], indent + ("    " if last else "│   "))


def describe(cli: Cli, path: PathArgument) -> None:
    """Tell what there is to know about a path: its version and state; for a table columns, indexes, rows and
    digest."""
    with cli.database() as db:
        found = db.describe(path)
    cli.output.result(found, lambda: tell_description(cli.output, found))


def tell_description(output: Output, found: dict[str, Any]) -> None:
    columns, indexes = found.get("columns"), found.get("indexes")
    parts = {"columns", "indexes"} if found["type"] == "table" else set()
    output.fields(
        (name, size(value) if name == "bytes" else value)
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
                (i["name"], i["kind"], ", ".join(i["columns"]), ", ".join(i["cover"]), i["version"])
                for i in indexes
            ],
            count=False,
        )
