"""``ls``: list what is directly below a path."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from strandline.cli.options import LOOK_AROUND, PathArgument, command
from strandline.cli.session import Cli
from strandline.cli.values import format_owner


def register(app: typer.Typer) -> None:
    command(app, "ls", LOOK_AROUND, example="strandline ls / --long")(ls)


def ls(
    cli: Cli,
    path: PathArgument = "/",
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Also show version, state, rows and bytes.")
    ] = False,
) -> None:
    """List what is directly below a path."""
    with cli.database() as db:
        entries = db.overview(path) if long else [entry._asdict() for entry in db.ls(path)]
        busy = db.busy(path)
    for entry in entries if long else ():
        entry["owner"] = busy.get(entry["name"], {}).get("owner")
    columns = ["name", "type", *(("version", "state", "rows", "bytes") if long else ())]
    cli.output.result(
        entries,
        lambda: cli.output.table(columns, [[entry[c] for c in columns] for entry in entries], count=False),
    )
    for name, found in busy.items():
        owner = found["owner"]
        what = f"{name} is {found['state']}: operation {owner['operation_id']} ({owner['kind']})"
        cli.output.note(f"{what}, carried out {format_owner(owner, time.time())}")
