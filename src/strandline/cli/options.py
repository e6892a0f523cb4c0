"""Shared parts of commands: the panels of ``--help``, common arguments, and the options of every command.

The options of every command are accepted before and after its name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from strandline.cli import completion, logs
from strandline.cli.output import nobody_reads
from strandline.cli.session import Cli

F = TypeVar("F", bound=Callable[..., Any])

START_HERE = "Start here"
WORK_WITH_DATA = "Work with data"
LOOK_AROUND = "Look around"
BACK_UP_AND_RESTORE = "Back up and restore"
CARE = "Care"
EVERY_COMMAND = "Options of every command"

PathArgument = Annotated[
    str, typer.Argument(help="A path such as /orders or /dir/t.", autocompletion=completion.paths)
]
CollectionArgument = Annotated[
    str, typer.Argument(help="The backup collection.", autocompletion=completion.collections)
]
BackupArgument = Annotated[
    str, typer.Argument(help="The name of a backup.", autocompletion=completion.backups)
]
NoWait = Annotated[
    bool,
    typer.Option("--nowait", help="Start the operation, print its id, and let it run in the background."),
]
MaxRate = Annotated[
    str | None,
    typer.Option("--max-rate", metavar="SIZE", help="Copy at most this many bytes per second, such as 50MB."),
]
Copies = Annotated[
    int | None, typer.Option("--copies", metavar="NUMBER", help="Number of files to copy at a time.", min=1)
]
Confirm = Annotated[
    bool, typer.Option("--confirm", help="Remove the backups. Without this option it is a dry run.")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        from strandline.version import VERSION

        typer.echo(f"strandline {VERSION}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", "-V", is_eager=True, callback=_show_version, help="Show the version and exit."),
]

Warehouse = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        "-w",
        metavar="FOLDER",
        help="The warehouse, a folder or a URL such as s3://bucket/folder (default: STRANDLINE_WAREHOUSE, "
        "then strandline.toml, then the current folder if it is a warehouse).",
        rich_help_panel=EVERY_COMMAND,
    ),
]
Catalog = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="URL",
        help="The catalog's database (default: STRANDLINE_CATALOG, then strandline.toml, then SQLite in the "
        "warehouse). Do not put a password here: other users of the machine can see it.",
        rich_help_panel=EVERY_COMMAND,
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="A service (strandline serve) to send the command to, such as https://host:8080 (default: "
        "STRANDLINE_SERVER). Its token is in --token-file or STRANDLINE_TOKEN.",
        rich_help_panel=EVERY_COMMAND,
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="With --server: a file with the token (default: STRANDLINE_TOKEN_FILE).",
        rich_help_panel=EVERY_COMMAND,
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="A profile in strandline.toml (default: STRANDLINE_PROFILE).",
        rich_help_panel=EVERY_COMMAND,
    ),
]
Assigned = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting, or a Spark option such as spark.driver.memory=4g. Repeatable.",
        rich_help_panel=EVERY_COMMAND,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON, one document per result.", rich_help_panel=EVERY_COMMAND),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=EVERY_COMMAND)
]

Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print nothing on success, for cron jobs. Errors go to stderr."),
]

LogLevel = Annotated[
    logs.Level | None,
    typer.Option(
        "--log-level",
        case_sensitive=False,
        help="Log to stderr from this level on (default: STRANDLINE_LOG_LEVEL).",
        rich_help_panel=EVERY_COMMAND,
    ),
]
LogFormat = Annotated[
    logs.LogForm | None,
    typer.Option(
        "--log-format",
        case_sensitive=False,
        help="Format of log lines (default: STRANDLINE_LOG_FORMAT).",
        rich_help_panel=EVERY_COMMAND,
    ),
]

_SHARED: dict[str, tuple[Any, Any]] = {
    "warehouse": (Warehouse, None),
    "catalog": (Catalog, None),
    "server": (Server, None),
    "token_file": (TokenFile, None),
    "profile": (Profile, None),
    "assigned": (Assigned, None),
    "as_json": (Json, False),
    "debug": (Debug, False),
    "log_level": (LogLevel, None),
    "log_format": (LogFormat, None),
}


def _without_python_types(parameters: list[Any]) -> list[Any]:
    """Keep Typer from showing Python types, such as ``<bool>`` or ``<list[str]>``, in ``--help``."""
    for parameter in parameters:
        if isinstance(parameter, TyperArgument):  # A metavar would replace its name.
            parameter.display_type_rich = _no_type  # type: ignore[method-assign]
        elif getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        elif parameter.metavar is None and not parameter.type_descriptor.is_choice:
            is_text = parameter.type_descriptor.annotation is str
            parameter.metavar = "TEXT" if is_text else "NUMBER"
    return parameters


def _no_type(ctx: Any) -> None:
    return None


class Command(TyperCommand):
    """A command without Python types in its help."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_python_types(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands without Python types in its help."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_python_types(super().get_params(ctx))


def example_text(example: str) -> str:
    """Return the example that ends the help of a command."""
    return f"Example: {example}"


def help_text(function: Callable[..., Any]) -> str:
    """Return the docstring of a command as its help, with each paragraph on one line."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def command(
    app: typer.Typer, name: str, panel: str | None = None, *, example: str, quiet: bool = False
) -> Callable[[F], F]:
    """Make ``function(cli, ...)`` a command of ``app``, with the shared options in addition to its own.

    Args:
        example: a complete command line, shown at the end of ``--help``.
        quiet: whether the command also has the option ``--quiet``.
    """

    def register(function: F) -> F:
        add = app.command(
            name, rich_help_panel=panel, cls=Command, help=help_text(function), epilog=example_text(example)
        )
        add(with_shared(function, quiet=quiet))
        return function

    return register


def with_shared(function: Callable[..., Any], *, quiet: bool = False) -> Callable[..., Any]:
    """Return the function that Typer calls for ``function(cli, ...)``, with the shared options added.

    If ``function`` is the callback of a group and a command of the group follows, ``function`` is not called:
    the shared options are only stored.
    """
    # Not get_type_hints: in Python 3.10 it hides Annotated where the default is None.
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    if quiet:
        kind = inspect.Parameter.KEYWORD_ONLY
        own.append(inspect.Parameter("quiet", kind, default=False, annotation=Quiet))
    shared = [
        inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d, annotation=a)
        for n, (a, d) in _SHARED.items()
    ]
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

    @functools.wraps(function)
    def run(*, context: typer.Context, **given: Any) -> Any:
        cli = apply(context.find_root().obj, **{n: given.pop(n) for n in _SHARED})
        if context.invoked_subcommand is not None:
            return None
        cli.output.quiet = given.pop("quiet", False)
        try:
            cli.output.notes_as_json = logs.configure(cli.configuration) is logs.LogForm.JSON
            code = function(cli, **given)
            if not code:
                cli.output.discard()
            return code
        except BrokenPipeError:
            return nobody_reads()  # Handled here: Typer would exit with an error.
        finally:
            cli.output.release()

    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    run.__signature__ = inspect.Signature([context, *keywords, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (context, *keywords, *shared)}
    del run.__wrapped__
    return run


def apply(
    cli: Cli,
    *,
    warehouse: str | None,
    catalog: str | None,
    server: str | None,
    token_file: str | None,
    profile: str | None,
    assigned: list[str] | None,
    as_json: bool,
    debug: bool,
    log_level: logs.Level | None,
    log_format: logs.LogForm | None,
) -> Cli:
    """Store shared options in ``cli``. Options after the command override those before it."""
    cli.warehouse = warehouse or cli.warehouse
    cli.catalog = catalog or cli.catalog
    cli.server = server or cli.server
    cli.token_file = token_file or cli.token_file
    cli.profile = profile or cli.profile
    cli.assigned += assigned or []
    cli.debug = cli.debug or debug
    cli.output.as_json = cli.output.as_json or as_json
    cli.log_level = log_level or cli.log_level
    cli.log_format = log_format or cli.log_format
    return cli
