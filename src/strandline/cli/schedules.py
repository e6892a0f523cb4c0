"""``schedules``: list, create, alter, pause, resume, drop, runs, run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli import completion
from strandline.cli.options import BACK_UP_AND_RESTORE, CollectionArgument, Group, command, example_text
from strandline.cli.session import Cli
from strandline.cli.values import moment

if TYPE_CHECKING:
    from strandline.api.schedules import ScheduleInfo, ScheduleRun
    from strandline.errors import StrandlineError

ScheduleName = Annotated[
    str, typer.Argument(metavar="NAME", help="The schedule.", autocompletion=completion.schedules)
]


def _line(name: str, what: str) -> Any:
    return typer.Option(f"--{name}", metavar="CRON", help=f"Cron line of {what}, such as '0 2 * * 1-6'.")


Full = Annotated[str | None, _line("full", "full backups")]
Incremental = Annotated[str | None, _line("incremental", "incremental backups")]
Verify = Annotated[str | None, _line("verify", "verifications of all backups")]
Drill = Annotated[str | None, _line("drill", "trial restores of the last backup")]
Level = Annotated[
    str | None,
    typer.Option("--level", help="Level of the verifications: chain, files, checksums or restore."),
]
Sample = Annotated[
    int | None,
    typer.Option("--sample", metavar="PERCENT", help="Check this percentage of the objects each time."),
]
Timezone = Annotated[
    str | None, typer.Option("--timezone", help="Time zone of the cron lines, such as Europe/Berlin.")
]
Missed = Annotated[
    str | None, typer.Option("--missed", help="What was missed: run it once (run), or leave it out (skip).")
]
Overlap = Annotated[
    str | None,
    typer.Option("--overlap", help="While the previous run goes on: wait for its end (wait), or skip."),
]
Retries = Annotated[
    int | None, typer.Option("--retries", metavar="NUMBER", help="How often a failed run is started again.")
]
RetrySeconds = Annotated[
    int | None, typer.Option("--retry-seconds", metavar="SECONDS", help="Pause before the first retry.")
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Take backups and verify them at the times of cron lines.",
        epilog=example_text("strandline schedules create nights nightly --full '0 2 * * 0'"),
        no_args_is_help=True,
        cls=Group,
    )
    app.add_typer(group, name="schedules", rich_help_panel=BACK_UP_AND_RESTORE)
    run_ = "strandline schedules"
    command(group, "list", example=f"{run_} list")(list_)
    command(
        group,
        "create",
        example=f"{run_} create nights nightly --full '0 2 * * 0' --incremental '0 2 * * 1-6'",
        quiet=True,
    )(create)
    command(group, "alter", example=f"{run_} alter nights --timezone Europe/Berlin", quiet=True)(alter)
    command(group, "pause", example=f"{run_} pause nights", quiet=True)(pause)
    command(group, "resume", example=f"{run_} resume nights", quiet=True)(resume)
    command(group, "drop", example=f"{run_} drop nights", quiet=True)(drop)
    command(group, "runs", example=f"{run_} runs nights")(runs)
    command(group, "run", example=f"{run_} run", quiet=True)(run)


def list_(cli: Cli) -> None:
    """List the schedules, each with its next and its last run."""
    with cli.database() as db:
        found = db.schedules()
    columns = ("name", "collection", "next", "at", "last", "due", "state", "note")
    cli.output.result([body_of(each) for each in found], lambda: cli.output.table(columns, map(_row, found)))


def create(
    cli: Cli,
    name: ScheduleName,
    collection: CollectionArgument,
    *,
    full: Full = None,
    incremental: Incremental = None,
    verify: Verify = None,
    drill: Drill = None,
    level: Level = None,
    sample: Sample = None,
    timezone: Timezone = None,
    missed: Missed = None,
    overlap: Overlap = None,
    retries: Retries = None,
    retry_seconds: RetrySeconds = None,
) -> None:
    """Create a schedule of a backup collection. `strandline schedules run` starts the runs that are due."""
    given = _given(locals())
    with cli.database() as db:
        found = db.create_schedule(name, collection, **given).info()
    cli.output.result(body_of(found), lambda: cli.output.note(_next(found)))


def alter(
    cli: Cli,
    name: ScheduleName,
    *,
    full: Full = None,
    incremental: Incremental = None,
    verify: Verify = None,
    drill: Drill = None,
    level: Level = None,
    sample: Sample = None,
    timezone: Timezone = None,
    missed: Missed = None,
    overlap: Overlap = None,
    retries: Retries = None,
    retry_seconds: RetrySeconds = None,
    reset: Annotated[
        list[str] | None,
        typer.Option("--reset", metavar="SETTING", help="Reset a setting, such as drill. Repeatable."),
    ] = None,
) -> None:
    """Change settings of a schedule. Runs that were due before the change are skipped."""
    given = _given(locals()) | {name.replace("-", "_"): None for name in reset or ()}
    with cli.database() as db:
        found = db.schedule(name).alter(**given)
    cli.output.result(body_of(found), lambda: cli.output.note(_next(found)))


def pause(cli: Cli, name: ScheduleName) -> None:
    """Start no more runs until the schedule is resumed. A run that has already started continues."""
    with cli.database() as db:
        db.schedule(name).pause()


def resume(cli: Cli, name: ScheduleName) -> None:
    """Start runs again. Runs that were due during the pause are skipped."""
    with cli.database() as db:
        db.schedule(name).resume()


def drop(cli: Cli, name: ScheduleName) -> None:
    """Remove a schedule. Its backups stay."""
    with cli.database() as db:
        db.schedule(name).drop()


def runs(
    cli: Cli,
    name: ScheduleName,
    limit: Annotated[
        int, typer.Option("--limit", metavar="NUMBER", min=1, help="At most this many, the latest first.")
    ] = 20,
) -> None:
    """List the runs of a schedule, the latest first."""
    with cli.database() as db:
        found = db.schedule(name).runs(limit)
    columns = ("task", "due", "state", "try", "operation", "ended", "note")
    cli.output.result(
        [run_body(each) for each in found], lambda: cli.output.table(columns, map(_run_row, found))
    )


def run(
    cli: Cli,
    once: Annotated[
        bool, typer.Option("--once", help="Start what is due now, wait until it has ended, and exit.")
    ] = False,
) -> None:
    """Start backups and verifications whenever they are due, until Ctrl-C or SIGTERM.

    Several processes may run this command at the same time: each run is started only once. If a process
    stops, another one continues the runs that it has started."""
    with cli.database() as db:
        if once:
            started = db.run_due()
            try:
                for each in started:
                    _tell(cli, each)
                    if each.operation_id is not None:
                        db.wait(each.operation_id)
            finally:
                db.run_due()  # Records the results, also of a run that failed.
            return
        with until_terminated() as stop:
            db.run_schedules(
                stop, on_run=lambda each: _tell(cli, each), on_error=lambda error: tell_error(cli, error)
            )


@contextmanager
def until_terminated() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM sets.

    Another thread sets it: the signal may arrive while this thread holds the lock of the event.
    """
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop.set).start())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(cli: Cli, run: ScheduleRun) -> None:
    cli.output.note(
        f"{run.schedule}: {run.task} due {moment(run.due)} started as operation {run.operation_id}"
    )


def tell_error(cli: Cli, error: StrandlineError) -> None:
    cli.output.note(f"{error.message} [{error.code}]; trying again")


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings among the arguments of a command, without those that are None."""
    others = ("cli", "name", "collection", "reset")
    return {name: value for name, value in values.items() if name not in others and value is not None}


def _next(found: ScheduleInfo) -> str:
    if found.next_run is None:
        return f"{found.name} is paused."
    return f"{found.name}: the next {found.next_task} is due {moment(found.next_run)}."


def body_of(found: ScheduleInfo) -> dict[str, Any]:
    """Return a schedule for JSON."""
    last = None if found.last_run is None else run_body(found.last_run)
    return {**asdict(found), "next_run": moment(found.next_run), "last_run": last}


def run_body(run: ScheduleRun) -> dict[str, Any]:
    """Return a run for JSON."""
    times = ("due", "began", "ended", "retry_at")
    return {**asdict(run), **{name: moment(getattr(run, name)) for name in times}}


def _row(found: ScheduleInfo) -> tuple[Any, ...]:
    last = found.last_run
    ended = ("", "", "", "") if last is None else (last.task, moment(last.due), last.state, last.note or "")
    next_ = "paused" if found.paused else found.next_task or "nothing"
    return (found.name, found.collection, next_, moment(found.next_run) or "", *ended)


def _run_row(run: ScheduleRun) -> tuple[Any, ...]:
    return (
        run.task,
        moment(run.due),
        run.state,
        run.attempt,
        run.operation_id or "",
        moment(run.ended) or "",
        run.note or "",
    )
