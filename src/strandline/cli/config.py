"""``config``: what holds for a command here, and where each of it comes from."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import typer

from strandline.cli.configuration import PLAIN, shown
from strandline.cli.options import LOOK_AROUND, command
from strandline.cli.session import Cli


def register(app: typer.Typer) -> None:
    command(app, "config", LOOK_AROUND)(config)


def config(
    cli: Cli,
    everything: Annotated[bool, typer.Option("--all", help="Also show what nobody has set.")] = False,
) -> None:
    """Show the configuration that holds here, and where each of it comes from: strandline.toml of the user
    and of the current folder, a profile, the environment, the command line. Secrets are not shown."""
    found = cli.configuration
    settings = found.settings()  # It refuses what cannot be.
    lines: list[tuple[str, Any, str]] = []
    if found.profile is not None:
        lines.append(("profile", found.profile.value, found.profile.source))
    lines += [(name, shown(name, v.value), v.source) for name, v in found.values.items()]
    if everything:
        unset = [(name, None) for name in PLAIN]
        unset += [(f.name, getattr(settings, f.name)) for f in fields(settings) if f.type != "dict[str, str]"]
        lines += [
            (name, None if value is None else str(value), "default")
            for name, value in unset
            if name not in found.values
        ]
    order = {name: place for place, name in enumerate(("profile", *PLAIN))}
    lines.sort(key=lambda line: (order.get(line[0], len(order)), line[0]))
    answer = {
        "files": found.files,
        "values": [{"name": name, "value": value, "from": source} for name, value, source in lines],
    }
    cli.output.result(answer, lambda: cli.output.table(("name", "value", "from"), lines, count=False))
