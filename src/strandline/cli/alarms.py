"""``alarms``: list, ack, test, run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.options import LOOK_AROUND, Group, command, example_text
from strandline.cli.schedules import tell_error, until_terminated
from strandline.cli.session import Cli
from strandline.cli.status import (
    BackupCritical,
    BackupWarning,
    ChainWarning,
    OperationWarning,
    StreamWarning,
    VerifiedWarning,
    read_thresholds,
)
from strandline.cli.values import moment

if TYPE_CHECKING:
    from strandline.alarms.board import AlarmDelivery
    from strandline.catalog.alarms import Alarm


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Send problems to people: webhooks, Slack-compatible receivers and mail.",
        epilog=example_text("strandline alarms list"),
        no_args_is_help=True,
        cls=Group,
    )
    app.add_typer(group, name="alarms", rich_help_panel=LOOK_AROUND)
    run_ = "strandline alarms"
    command(group, "list", example=f"{run_} list --all")(list_)
    command(group, "ack", example=f"{run_} ack rpo_missed nightly", quiet=True)(ack)
    command(group, "test", example=f"{run_} test ops")(test)
    command(group, "run", example=f"{run_} run", quiet=True)(run)


def list_(
    cli: Cli,
    all_: Annotated[bool, typer.Option("--all", help="List also alarms whose condition has ended.")] = False,
) -> None:
    """List the open alarms, the latest first."""
    with cli.database() as db:
        found = db.alarms(cleared=all_)
    columns = ("kind", "subject", "level", "raised", "sent", "acknowledged", "cleared", "message")
    cli.output.result([_body(each) for each in found], lambda: cli.output.table(columns, map(_row, found)))


def ack(
    cli: Cli,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The kind of the alarm, such as rpo_missed.")],
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="What the alarm is about.")],
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who acknowledges it (default: you).")
    ] = None,
) -> None:
    """Acknowledge an alarm, so that it is not sent again until it is resolved or gets worse."""
    with cli.database() as db:
        found = db.acknowledge_alarm(kind, subject, by)
    cli.output.result(_body(found), lambda: cli.output.note(f"acknowledged by {found.acknowledged_by}"))


def test(
    cli: Cli,
    name: Annotated[str, typer.Argument(metavar="CHANNEL", help="A channel of the settings.")],
) -> int:
    """Send a test message on a channel, and say what the receiver answered. Exit code 0: it was accepted."""
    with cli.database() as db:
        sent = db.test_alarm_channel(name)
    cli.output.result(asdict(sent), lambda: cli.output.line(sent.error or f"{name}: {sent.answer}"))
    return 0 if sent.error is None else 1


def run(
    cli: Cli,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Look for problems, send what has to be sent, and exit.")
    ] = False,
    backup_warning: BackupWarning = None,
    backup_critical: BackupCritical = None,
    verified_warning: VerifiedWarning = None,
    chain_warning: ChainWarning = None,
    operation_warning: OperationWarning = None,
    stream_warning: StreamWarning = None,
) -> int | None:
    """Raise, send and clear alarms, until Ctrl-C or SIGTERM.

    Several processes may run this command at the same time: each message is sent by one of them.
    `strandline schedules run` does the same beside its schedules. With --once, the exit code is 1 if a
    channel has failed."""
    thresholds = read_thresholds(locals())
    with cli.database() as db:
        if once:
            sent = db.check_alarms(**thresholds)
            for each in sent:
                _tell(cli, each)
            return int(any(each.error is not None for each in sent))
        with until_terminated() as stop:
            db.run_alarms(
                stop,
                on_sent=lambda each: _tell(cli, each),
                on_error=lambda error: tell_error(cli, error),
                **thresholds,
            )
    return None


def _tell(cli: Cli, sent: AlarmDelivery) -> None:
    cli.output.note(sent.error or f"{sent.channel}: sent {sent.alarms}: {sent.answer}")


def _body(alarm: Alarm) -> dict[str, Any]:
    """Return an alarm for JSON."""
    times = ("raised_at", "cleared_at", "acknowledged_at", "last_sent")
    return {**asdict(alarm), **{name: moment(getattr(alarm, name)) for name in times}}


def _row(alarm: Alarm) -> tuple[Any, ...]:
    sent = f"{alarm.times_sent}x, {moment(alarm.last_sent)}" if alarm.times_sent else "no"
    return (
        alarm.kind,
        alarm.subject,
        alarm.level,
        moment(alarm.raised_at),
        sent,
        alarm.acknowledged_by or "",
        moment(alarm.cleared_at) or "",
        alarm.message,
    )
