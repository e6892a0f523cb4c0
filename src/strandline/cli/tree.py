"""``tree``: draw the tree below a path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.options import LOOK_AROUND, PathArgument, command
from strandline.cli.session import Cli

if TYPE_CHECKING:
    from strandline.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "tree", LOOK_AROUND, example="strandline tree / --depth 2")(tree)


def tree(
    cli: Cli,
    path: PathArgument = "/",
    depth: Annotated[
        int | None, typer.Option("--depth", "-d", min=1, help="Maximum number of levels.")
    ] = None,
) -> None:
    """Draw the tree below a path."""
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
