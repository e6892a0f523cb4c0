"""``config``: show the effective settings and their sources.

``config set`` and ``config unset`` change the settings that are stored in the warehouse.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Annotated, Any

import typer

from strandline.cli.configuration import PLAIN, Value, display_value
from strandline.cli.options import LOOK_AROUND, Group, command, example_text, help_text, with_shared
from strandline.cli.session import Cli
from strandline.errors import StrandlineError
from strandline.names import MARKER
from strandline.settings import SHARED

Name = Annotated[str, typer.Argument(help="A setting of the warehouse, such as history_seconds.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        invoke_without_command=True,
        cls=Group,
        help=help_text(config),
        epilog=example_text("strandline config --all"),
    )
    group.callback()(with_shared(config))
    app.add_typer(group, name="config", rich_help_panel=LOOK_AROUND)
    command(group, "set", example="strandline config set history_seconds 604800")(set_)
    command(group, "unset", example="strandline config unset history_seconds")(unset)


def config(
    cli: Cli,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show settings that have their default.")
    ] = False,
) -> None:
    """Show effective settings and their sources.

    A source is the strandline.toml of the user or of the current folder, a profile, an environment variable,
    the command line or the warehouse. Secrets are masked."""
    found = cli.configuration
    settings = found.read_settings()  # Raises on invalid values.
    if found.refusal is not None:
        cli.output.note(f"warning: {found.refusal.message}\n{found.refusal.hint}")
    of_warehouse = _of_warehouse(cli)
    lines: list[tuple[str, Any, str]] = []
    if found.profile is not None:
        lines.append(("profile", found.profile.value, found.profile.source))
    lines += [(name, display_value(name, v.value), v.source) for name, v in found.values.items()]
    lines = [line for line in lines if line[0] not in of_warehouse]
    lines += [
        _line(name, value, stored, found.values.get(name)) for name, (value, stored) in of_warehouse.items()
    ]
    if everything:
        unset: list[tuple[str, Any]] = [(name, None) for name in PLAIN]
        unset += [(f.name, getattr(settings, f.name)) for f in fields(settings) if f.type != "dict[str, str]"]
        unset = [(name, SHARED.get(name, value)) for name, value in unset]
        named = {name for name, _, _ in lines}
        lines += [
            (name, None if value is None else str(value), "default")
            for name, value in unset
            if name not in named
        ]
    else:
        lines = [line for line in lines if line[2] != "default"]
    order = {name: place for place, name in enumerate(("profile", *PLAIN))}
    lines.sort(key=lambda line: (order.get(line[0], len(order)), line[0]))
    answer = {
        "files": found.files,
        "values": [{"name": name, "value": value, "from": source} for name, value, source in lines],
    }
    cli.output.result(answer, lambda: cli.output.table(("name", "value", "from"), lines, count=False))


def _of_warehouse(cli: Cli) -> Mapping[str, tuple[float, bool]]:
    """Return each setting of the warehouse by name: its value, and whether the warehouse stores that value.

    The result is empty if there is no warehouse, or if the warehouse cannot be opened.
    """
    from strandline.storage.bucket import is_url

    try:
        folder = cli.folder()
        if not is_url(folder) and not os.path.exists(os.path.join(folder, MARKER)):
            return {}
        from strandline.catalog.warehouse_settings import read_stored_settings, settings_at

        with cli.database() as db, db._runtime.catalog.read() as conn:
            stored = read_stored_settings(conn)
            present = asdict(settings_at(conn, db._runtime.clock.now()))
    except StrandlineError as error:
        if cli.configuration.text("warehouse") is not None:
            cli.output.note(f"The settings of the warehouse cannot be read: {error.message}.")
        return {}
    return {name: (value, name in stored) for name, value in present.items()}


def _line(name: str, value: float, is_stored: bool, own: Value | None) -> tuple[str, str, str]:
    source = "warehouse" if is_stored else "default"
    if own is not None and own.value == value:
        source = own.source
    elif own is not None:
        source = f"{source} ({own.source} asks for less: {own.value})"
    return name, str(value), source


def set_(
    cli: Cli,
    name: Name,
    value: Annotated[str, typer.Argument(help="A number. For names that end with _seconds: seconds.")],
) -> None:
    """Store a setting in the warehouse, for all processes."""
    from strandline.catalog.warehouse_settings import read_value

    _change(cli, *read_value(name, value))


def unset(cli: Cli, name: Name) -> None:
    """Remove a setting from the warehouse, so that its default applies."""
    from strandline.catalog.warehouse_settings import check_name

    _change(cli, check_name(name), None)


def _change(cli: Cli, name: str, value: float | None) -> None:
    from strandline.api.warehouse import change_settings
    from strandline.catalog.warehouse_settings import read_stored_settings, settings_at

    with cli.database() as db:
        change_settings(db, [(name, value)])
        with db._runtime.catalog.read() as conn:
            now = asdict(settings_at(conn, db._runtime.clock.now()))[name]
            later = read_stored_settings(conn).get(name, now)
    # A lower grace period takes effect when the former one has passed.
    then = "" if later == now else f", and {later:.15g} when that time has passed"
    cli.output.result({"name": name, "value": now}, lambda: cli.output.line(f"{name} is {now:.15g}{then}"))
