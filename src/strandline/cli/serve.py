"""``serve``: the HTTP API, the web console and the maintenance of a warehouse."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.options import CARE, command
from strandline.cli.session import Cli
from strandline.errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from strandline.api import Database
    from strandline.server import ServerSettings


def register(app: typer.Typer) -> None:
    command(app, "serve", CARE, example="strandline serve -w shop --port 8080")(serve)


def serve(
    cli: Cli,
    *,
    host: Annotated[
        str,
        typer.Option("--host", help="Address to listen on. Any but loopback needs TLS or --behind-proxy."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on; 0: a free one.")] = 8080,
    tls_cert: Annotated[
        str | None, typer.Option("--tls-cert", metavar="FILE", help="The certificate chain, in PEM.")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", metavar="FILE", help="The key of the certificate, in PEM.")
    ] = None,
    behind_proxy: Annotated[
        bool,
        typer.Option(
            "--behind-proxy",
            help="A proxy in front of the service encrypts, and appends the client to X-Forwarded-For.",
        ),
    ] = False,
    no_schedules: Annotated[
        bool, typer.Option("--no-schedules", help="Do not start the runs of schedules.")
    ] = False,
    no_maintenance: Annotated[
        bool, typer.Option("--no-maintenance", help="Do not merge, compact or collect garbage.")
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=NUMBER",
            help="A setting of the service such as sql_seconds=30. Repeatable.",
        ),
    ] = None,
) -> None:
    """Serve a warehouse over HTTP until SIGTERM or Ctrl-C.

    Each request needs a token: strandline token create. The first start on a terminal creates an admin token
    and shows it once."""
    if cli.service is not None:
        raise Unsupported("a service cannot serve another service", "Name the warehouse with -w FOLDER.")
    from strandline.server import ServerSettings, run

    given = _limits(limit or [])
    if no_maintenance:
        given["maintain_seconds"] = 0.0
    settings = ServerSettings(
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        run_schedules=not no_schedules,
        **given,
    )

    def open_database() -> AbstractContextManager[Database]:
        return cli.database()

    def tell(db: Database, port: int) -> None:
        _tell_start(cli, settings, db, port)

    run(open_database, settings, tell)


def _limits(given: list[str]) -> dict[str, Any]:
    """Parse ``NAME=NUMBER``."""
    from strandline.names import did_you_mean
    from strandline.server import ServerSettings

    kinds = {
        f.name: f.type for f in fields(ServerSettings) if f.type in ("int", "float") and f.name != "port"
    }
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if name not in kinds or not equals:
            raise InvalidArgument(
                f"there is no limit {name!r}",
                did_you_mean(name, kinds) or f"Known limits: {', '.join(sorted(kinds))}.",
            )
        try:
            found[name] = int(value) if kinds[name] == "int" else float(value)
        except ValueError:
            raise InvalidArgument(f"the limit {name} cannot be {value!r}", "Give a number.") from None
    return found


def _tell_start(cli: Cli, settings: ServerSettings, db: Database, port: int) -> None:
    """Say where the service is. On a terminal, create and show the first token."""
    scheme = "https" if settings.has_tls else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    cli.output.line(f"serving {db._runtime.files.location} at {scheme}://{host}:{port}")
    if not db.tokens():
        if sys.stdout.isatty():
            token = db.create_token("first", role="admin").token
            cli.output.line(f"admin token, shown only now: {token}")
        else:
            cli.output.note("there is no token yet: strandline token create --role admin NAME")
    sys.stdout.flush()
