"""The Typer app with all commands, and the error handling of every run."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib import import_module

import typer

from strandline.cancellation import Interrupted
from strandline.cli import failures, logs, options, status_line
from strandline.cli.failures import Fault
from strandline.cli.options import example_text
from strandline.cli.output import Output, nobody_reads
from strandline.cli.progress import LeftAlone
from strandline.cli.session import Cli
from strandline.errors import GOES_ON, Internal, StrandlineError, Unavailable, UnderOperation


def _root(
    context: typer.Context,
    *,
    show_version: options.Version = False,
    warehouse: options.Warehouse = None,
    catalog: options.Catalog = None,
    server: options.Server = None,
    token_file: options.TokenFile = None,
    profile: options.Profile = None,
    assigned: options.Assigned = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
    log_level: options.LogLevel = None,
    log_format: options.LogFormat = None,
) -> None:
    options.apply(
        context.obj,
        warehouse=warehouse,
        catalog=catalog,
        server=server,
        token_file=token_file,
        profile=profile,
        assigned=assigned,
        as_json=as_json,
        debug=debug,
        log_level=log_level,
        log_format=log_format,
    )


COMMANDS = (
    "init",
    "demo",
    "version",
    "help",
    "sql",
    "load",
    "export",
    "ls",
    "tree",
    "describe",
    "history",
    "status",
    "alarms",
    "config",
    "backup",
    "restore",
    "show-backup",
    "copy-backup",
    "attach",
    "verify",
    "repair",
    "compact-backups",
    "drop-backup",
    "bin",
    "undrop",
    "prune",
    "schedules",
    "rotate-key",
    "operations",
    "check",
    "maintain",
    "metrics",
    "serve",
    "token",
    "audit",
    "trust",
)
"""All commands, in the order of ``--help``. The panels are shown in the order of their first commands."""


def app_with(names: Iterable[str]) -> typer.Typer:
    """Return the app with these commands; import only their modules."""
    app = typer.Typer(
        name="strandline",
        help="Keyed tables with global secondary indexes on Spark, "
        "and incremental backup and restore of both as one consistent unit.",
        epilog=f"{example_text('strandline init shop')}\n\nHelp for one command: strandline COMMAND --help",
        cls=options.Group,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(_root)
    for name in names:
        import_module(f"strandline.cli.{name.replace('-', '_')}").register(app)
    return app


def _commands_of_line(args: Sequence[str]) -> Sequence[str]:
    """Return the names of the commands to import: those that occur in the command line.

    Importing all commands takes longer than running most of them. All names are returned if the command line
    has no command, or asks for help.
    """
    named = [name for name in COMMANDS if name in args]
    before = args[: min(map(args.index, named), default=0)]
    return COMMANDS if not named or "help" in named or {"--help", "-h"} & set(before) else named


def run(args: list[str]) -> int:
    """Run a command line; return the exit code."""
    cli = Cli()
    # Parsed by hand: errors in the command line itself must follow --json and --quiet, too.
    as_json, debug = "--json" in args, "--debug" in args
    silent = as_json or "--quiet" in args or "-q" in args
    try:
        with logs.as_before(), status_line.on_terminal(silent=silent):
            command = typer.main.get_command(app_with(_commands_of_line(args)))
            code = command.main(args, prog_name="strandline", standalone_mode=False, obj=cli)
        sys.stdout.flush()
        if code == failures.INTERRUPTED:
            return failures.tell(Interrupted(is_late=cli.was_late), cli.output, as_json=as_json)
        return code if isinstance(code, int) else 0
    except typer.TyperException as error:
        return _usage(error, cli.output, as_json)
    except (typer.Abort, KeyboardInterrupt):
        return failures.tell(Interrupted(is_late=cli.was_late), cli.output, as_json=as_json)
    except LeftAlone as left:
        return _exit_early(left, cli.output)
    except BrokenPipeError:
        return nobody_reads()
    except SystemExit as left:
        # Typer turns a BrokenPipeError into SystemExit.
        if not isinstance(left.__context__, BrokenPipeError):
            raise
        return nobody_reads()
    except StrandlineError as error:
        if debug:
            traceback.print_exc()
        return failures.tell(error, cli.output, as_json=as_json)
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, OSError) and error.filename is None:  # An error of stdout, not of a file.
            nobody_reads()
            said = f"the answer cannot be written: {error.strerror or error}"
            full = Unavailable(said, "Check the target of stdout and the free space there.")
            return failures.tell(full, cli.output, as_json=as_json)
        unexpected = Internal(f"an unexpected {type(error).__name__}: {error}")
        return failures.tell(unexpected, cli.output, as_json=as_json)


def _usage(error: typer.TyperException, output: Output, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if not message:  # No command was given, and the help is printed already.
        return failures.USAGE
    command = context.command_path if context is not None else "strandline"
    fault = Fault(
        code="USAGE",
        message=message[:1].lower() + message[1:],
        hint=f"See: {command} --help",
        exit_code=failures.USAGE,
    )
    return failures.say(fault, output, as_json=as_json)


def _exit_early(left: LeftAlone, output: Output) -> int:
    """Return the exit code of a command that ended before its operation; with JSON, print a document.

    Without JSON, the command has already printed a message.
    """
    if output.as_json:
        fault = Fault(
            code=UnderOperation.code,  # The operation is not cancelled.
            message=f"interrupted; operation {left.operation_id} "
            + ("goes on in the background" if left.goes_on else "stays unfinished"),
            hint=f"Go on with: strandline operations wait {left.operation_id}",
            exit_code=failures.INTERRUPTED,
            operation=left.operation_id,
            outcome=GOES_ON,  # If no background process continues it, the next process does.
        )
        return failures.say(fault, output)
    return failures.INTERRUPTED
