"""``trust``: allow the configuration file of a folder."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer

from strandline.cli.options import CARE, command
from strandline.cli.session import Cli
from strandline.errors import InvalidArgument, PathNotFound


def register(app: typer.Typer) -> None:
    command(app, "trust", CARE, example="strandline trust strandline.toml")(trust)


def trust(
    cli: Cli,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The configuration file.")] = "strandline.toml",
    show: Annotated[bool, typer.Option("--list", help="List the trusted files.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Stop trusting the file.")] = False,
) -> None:
    """Trust the present content of a strandline.toml. Read it first.

    Its settings that run programs or send secrets are used until the file changes."""
    from strandline.cli import project_trust
    from strandline.cli.configuration import dangers_of

    if show and remove:
        raise InvalidArgument("--list and --remove exclude each other", "Give one of them.")
    if show:
        _list(cli)
        return
    path = Path(file) / "strandline.toml" if Path(file).is_dir() else Path(file)
    if remove:
        real = os.path.realpath(path)
        project_trust.forget(real)
        cli.output.result(
            {"file": real, "trusted": False}, lambda: cli.output.line(f"{real} is no longer trusted")
        )
        return
    found = project_trust.read_project_file(path)
    if found is None:
        raise PathNotFound(f"there is no file {path}", "Name a strandline.toml.")
    dangers = dangers_of(found)
    project_trust.trust(found)

    def tell() -> None:
        cli.output.line(f"{found.path} is trusted with its present content")
        for where, why in dangers:
            cli.output.line(f"  {where}: {why}")

    settings = [{"setting": where, "because": why} for where, why in dangers]
    cli.output.result({"file": found.path, "trusted": True, "settings": settings}, tell)


def _list(cli: Cli) -> None:
    from strandline.cli import project_trust

    lines: list[tuple[Any, ...]] = []
    for path, trusted in project_trust.list_trusted().items():
        found = project_trust.read_project_file(Path(path))
        state = "missing" if found is None else "trusted" if found.is_trusted else "changed since"
        since = datetime.fromtimestamp(trusted.since, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        lines.append((path, state, since))
    answer = [dict(zip(("file", "state", "since"), line, strict=True)) for line in lines]
    cli.output.result(answer, lambda: cli.output.table(("file", "state", "since"), lines))
