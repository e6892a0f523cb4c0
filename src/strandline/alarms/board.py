"""The board of alarms: raise alarms, clear them, and send messages about them.

Any number of processes may run a board. A round has two halves:

1. **Look.** One process at a time looks for problems: it claims the round in the catalog, finds the problems,
   and stores the alarms if the round is still its own. It keeps the watch until it has not looked for
   ``WATCH_SECONDS``. So processes with different settings do not raise and clear alarms in turns, and a
   process that was stopped cannot store what it found an hour ago.
2. **Send.** A process claims a channel in the catalog, sends one message about all alarms that are due on
   the channel, and stores that. If the process dies in between, the claim expires and another process
   sends the message, with the same keys. So each message arrives at least once.

A channel that fails is tried again with growing pauses. The other channels and the look do not wait for it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from strandline.alarms.channel import MailChannel, WebChannel, read_channels
from strandline.alarms.message import AlarmMessage, Item, digest_of
from strandline.alarms.problem import GRADES, Attention, Grade
from strandline.alarms.transport import send
from strandline.catalog import alarms, warehouse
from strandline.catalog.alarms import (
    RAISED,
    REPEATED,
    RESOLVED,
    Alarm,
    ChannelRow,
    SendRow,
    WatchRow,
)
from strandline.catalog.transactions import Writer
from strandline.errors import InvalidArgument, StrandlineError, TimedOut, mask_urls
from strandline.metrics import event
from strandline.names import did_you_mean
from strandline.runtime import Runtime

log = logging.getLogger("strandline")

LOOK_SECONDS = 60.0
"""Interval between two looks for problems."""
WATCH_SECONDS = 3 * LOOK_SECONDS
"""Time without a look after which another process takes over."""
CLAIM_SECONDS = 120.0
"""Time for which a process may send on a channel. It is longer than a message takes at most."""
BACKOFF_SECONDS = (10.0, 30.0, 60.0, 300.0, 900.0)
"""Pauses after failed attempts on a channel. The last one repeats."""
TOGETHER = 100
"""Maximum number of alarms in a message."""


@dataclass(frozen=True, kw_only=True)
class AlarmDelivery:
    """An attempt to send a message on a channel.

    Attributes:
        alarms: Number of alarms in the message.
        answer: Answer of the receiver. None: the attempt failed.
        error: Why the attempt failed. None: the receiver accepted the message.
    """

    channel: str
    alarms: int
    answer: str | None
    error: str | None


class AlarmBoard:
    """The alarms of one warehouse.

    Args:
        find: Finds the problems of the warehouse.
    """

    def __init__(self, runtime: Runtime, find: Callable[[], Sequence[Attention]]) -> None:
        self._runtime = runtime
        self._find = find
        self._id = uuid.uuid4().hex
        self._channels = read_channels(runtime.settings)
        with runtime.catalog.read() as conn:
            self._warehouse = warehouse.require(conn).id

    def tick(self) -> list[AlarmDelivery]:
        """Look for problems if a look is due, and send messages; return the attempts to send."""
        self.look()
        return self.send_due()

    # --- look ----------------------------------------------------------------------------------------------

    def look(self) -> bool:
        """Raise and clear alarms, if a look is due and no other process keeps the watch."""
        now = self._runtime.clock.now()
        with self._runtime.catalog.read() as conn:
            if not self._is_due(alarms.find_watch(conn), now):
                return False
        with self._runtime.catalog.write() as tx:
            before = alarms.find_watch(tx.conn)
            if not self._is_due(before, tx.now):
                return False
            number = 1 if before is None else before.round + 1
            mine = WatchRow(
                holder=self._id, round=number, next_at=tx.now + LOOK_SECONDS, until=tx.now + WATCH_SECONDS
            )
            alarms.put_watch(tx, mine)
        found = join_problems(self._find())
        with self._runtime.catalog.read() as conn:
            known = {row.key: row for row in alarms.list_alarms(conn, cleared=True)}
        if not changes(known, found, now):
            return True
        with self._runtime.catalog.write() as tx:
            if alarms.find_watch(tx.conn) != mine:
                return False
            known = {row.key: row for row in alarms.list_alarms(tx.conn, cleared=True)}
            changed = changes(known, found, tx.now)
            alarms.put_alarms(tx, changed)
        for row in changed:
            was = known.get(row.key)
            if row.cleared_at is not None:
                event("alarm cleared", kind=row.kind, subject=row.subject)
            elif was is None or was.number != row.number:
                event("alarm raised", kind=row.kind, subject=row.subject, level=row.level, why=row.message)
        return True

    def release(self) -> None:
        """Let another process look for problems at once."""
        with self._runtime.catalog.read() as conn:
            watch = alarms.find_watch(conn)
        if watch is None or watch.holder != self._id:
            return
        with self._runtime.catalog.write() as tx:
            if alarms.find_watch(tx.conn) == watch:
                alarms.put_watch(tx, replace(watch, until=tx.now))

    def _is_due(self, watch: WatchRow | None, now: float) -> bool:
        # A time that is too far ahead was stored before the clock was set back.
        if watch is None or not now < watch.until <= now + WATCH_SECONDS:
            return True
        return watch.holder == self._id and now >= watch.next_at

    # --- send ----------------------------------------------------------------------------------------------

    def send_due(self) -> list[AlarmDelivery]:
        """Send one message on each channel that has alarms due; return the attempts."""
        claimed = [each for name in self._channels if (each := self._claim(name)) is not None]
        if len(claimed) < 2:
            return [self._send(*each) for each in claimed]
        with ThreadPoolExecutor(len(claimed), "strandline-send") as pool:
            return list(pool.map(lambda each: self._send(*each), claimed))

    def _claim(self, name: str) -> tuple[ChannelRow, list[Item]] | None:
        """Claim a channel, and return its claim and what is due. None: nothing is due, or it is claimed."""
        with self._runtime.catalog.read() as conn:
            now = self._runtime.clock.now()
            if not _is_free(alarms.find_channel(conn, name), now) or not self._items(
                alarms.list_pending(conn, name), name, now
            ):
                return None
        with self._runtime.catalog.write() as tx:
            row = alarms.find_channel(tx.conn, name)
            items = self._items(alarms.list_pending(tx.conn, name), name, tx.now)
            if not _is_free(row, tx.now) or not items:
                return None
            claim = uuid.uuid4().hex
            row = replace(row, claimed_by=claim, claimed_until=tx.now + CLAIM_SECONDS)
            alarms.put_channel(tx, row)
            # If this process is killed, the message may have arrived, and its end has to be sent as well.
            alarms.put_sends(tx, [_send_row(item, name, tx.now, sure=False) for item in items[:TOGETHER]])
        return row, items[:TOGETHER]

    def _send(self, claim: ChannelRow, items: Sequence[Item]) -> AlarmDelivery:
        """Send a message on a claimed channel, and store the outcome unless the claim has expired."""
        message = self._message(items)
        may_have_arrived = False
        try:
            answer, error = send(self._channels[claim.name], message), None
        except StrandlineError as failed:
            answer, error, may_have_arrived = None, failed.message, isinstance(failed, TimedOut)
        with self._runtime.catalog.write() as tx:
            if alarms.find_channel(tx.conn, claim.name) == claim:
                if error is None:
                    self._store(tx, claim, items)
                else:
                    self._store_failure(tx, claim, error)
                    if not may_have_arrived:
                        _undo(tx, claim.name, items)
        sent = AlarmDelivery(channel=claim.name, alarms=len(items), answer=answer, error=error)
        if error is None:
            event("alarms sent", channel=claim.name, alarms=len(items), key=message.key)
        else:
            event("alarms not sent", channel=claim.name, alarms=len(items), why=error)
            log.warning("%s", error)
        return sent

    def _store_failure(self, tx: Writer, claim: ChannelRow, error: str) -> None:
        pause = BACKOFF_SECONDS[min(claim.failures, len(BACKOFF_SECONDS) - 1)]
        failed = ChannelRow(
            name=claim.name,
            failures=claim.failures + 1,
            failed_since=tx.now if claim.failed_since is None else claim.failed_since,
            retry_at=tx.now + pause,
            note=error,
        )
        alarms.put_channel(tx, failed)

    def _store(self, tx: Writer, claim: ChannelRow, items: Sequence[Item]) -> None:
        alarms.put_channel(tx, ChannelRow(name=claim.name))
        alarms.put_sends(tx, [_send_row(item, claim.name, tx.now, sure=True) for item in items])
        told = {item.alarm.key: item for item in items}
        known = [row for row in alarms.list_alarms(tx.conn, cleared=True) if row.key in told]
        same = [row for row in known if row.number == told[row.key].alarm.number]
        alarms.put_alarms(tx, [replace(row, last_sent=tx.now, times_sent=row.times_sent + 1) for row in same])

    def _items(self, pending: Iterable[tuple[Alarm, SendRow | None]], channel: str, now: float) -> list[Item]:
        """Return the items that are due on a channel."""
        settings = self._channels[channel]
        found = []
        for alarm, sent in pending:
            if alarm.key == ("channel_failed", channel):
                continue
            what = due_event(
                alarm, sent, now, level=settings.level, repeat=self._runtime.settings.alarm_repeat_seconds
            )
            if what is not None:
                occurrence = (*alarm.key, alarm.number, alarm.raised_at, alarm.level)
                key = digest_of(self._warehouse, channel, *occurrence, what, _times(sent))
                found.append(Item(event=what, key=key, alarm=alarm, sent=sent))
        return found

    def _message(self, items: Sequence[Item]) -> AlarmMessage:
        return AlarmMessage(
            warehouse=self._warehouse,
            place=mask_urls(self._runtime.files.location),
            time=self._runtime.clock.now(),
            items=items,
        )

    # --- tests of channels ---------------------------------------------------------------------------------

    def test(self, name: str) -> AlarmDelivery:
        """Send a test message on a channel; return the answer of the receiver, or the error."""
        channel = self.channel(name)
        now = self._runtime.clock.now()
        alarm = Alarm(
            kind="test",
            subject="test",
            number=1,
            level="warning",
            message="this is a test message; alarms will arrive in this form",
            hint="Nothing needs to be done.",
            raised_at=now,
        )
        item = Item(event="test", key=digest_of(uuid.uuid4().hex), alarm=alarm)
        try:
            return AlarmDelivery(
                channel=name, alarms=0, answer=send(channel, self._message([item])), error=None
            )
        except StrandlineError as error:
            return AlarmDelivery(channel=name, alarms=0, answer=None, error=error.message)

    def channel(self, name: str) -> WebChannel | MailChannel:
        """Return a channel by its name; refuse a name that the settings do not have."""
        if name not in self._channels:
            raise InvalidArgument(
                f"there is no channel {name!r}",
                did_you_mean(name, self._channels)
                or (
                    f"There are {', '.join(sorted(self._channels))}."
                    if self._channels
                    else "Write one into strandline.toml, below [channels.NAME]."
                ),
            )
        return self._channels[name]


def join_problems(found: Iterable[Attention]) -> dict[tuple[str, str], Attention]:
    """Return one problem for each kind and subject: the most severe one, and how many there are."""
    joined: dict[tuple[str, str], list[Attention]] = {}
    for problem in found:
        joined.setdefault((problem.kind, problem.subject), []).append(problem)
    return {key: _join(problems) for key, problems in joined.items()}


def _join(problems: Sequence[Attention]) -> Attention:
    first = max(problems, key=lambda problem: GRADES.index(problem.level))
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return replace(first, message=mask_urls(first.message) + more, hint=mask_urls(first.hint))


def changes(
    known: Mapping[tuple[str, str], Alarm], found: Mapping[tuple[str, str], Attention], now: float
) -> list[Alarm]:
    """Return the alarms that have to be stored, because they are raised, changed or cleared."""
    changed = []
    for (kind, subject), problem in found.items():
        row = known.get((kind, subject))
        if row is None or row.cleared_at is not None:
            changed.append(
                Alarm(
                    kind=kind,
                    subject=subject,
                    number=1 if row is None else row.number + 1,
                    level=problem.level,
                    message=problem.message,
                    hint=problem.hint,
                    raised_at=now,
                )
            )
            continue
        present = replace(row, level=problem.level, message=problem.message, hint=problem.hint)
        if is_worse(present.level, row.level):
            present = replace(present, acknowledged_at=None, acknowledged_by=None)
        if present != row:
            changed.append(present)
    changed += [
        replace(row, cleared_at=now)
        for key, row in known.items()
        if key not in found and row.cleared_at is None
    ]
    return changed


def due_event(alarm: Alarm, sent: SendRow | None, now: float, *, level: Grade, repeat: float) -> str | None:
    """Return the event of an alarm that is due on a channel. None: no message is due.

    Args:
        sent: The last message about the alarm on the channel.
        level: Lowest level of the alarms that are sent on the channel.
        repeat: Interval in seconds at which an alarm is repeated until it is acknowledged. 0: never.
    """
    knows = sent is not None and (sent.event != RESOLVED or not sent.sure)
    if alarm.cleared_at is not None:
        return RESOLVED if knows else None
    if GRADES.index(_grade(alarm.level)) < GRADES.index(level):
        return None
    if sent is None or sent.number != alarm.number or is_worse(alarm.level, sent.level):
        return RAISED
    if alarm.acknowledged_at is not None:
        return None
    if not sent.sure:
        return sent.event
    if not repeat:
        return None
    # The difference is negative if the clock was set back.
    return None if 0 <= now - sent.time < repeat else REPEATED


def is_worse(level: str, than: str) -> bool:
    return GRADES.index(_grade(level)) > GRADES.index(_grade(than))


def _grade(level: str) -> Grade:
    return "critical" if level == "critical" else "warning" if level == "warning" else "fine"


def _send_row(item: Item, channel: str, now: float, *, sure: bool) -> SendRow:
    return SendRow(
        kind=item.alarm.kind,
        subject=item.alarm.subject,
        channel=channel,
        number=item.alarm.number,
        event=item.event,
        level=item.alarm.level,
        time=now,
        times=_times(item.sent) + sure,
        sure=sure,
    )


def _undo(tx: Writer, channel: str, items: Sequence[Item]) -> None:
    """Restore what was known of a channel before a message that the receiver did not accept."""
    alarms.put_sends(tx, [item.sent for item in items if item.sent is not None])
    unknown = [_send_row(item, channel, tx.now, sure=False) for item in items if item.sent is None]
    alarms.remove_sends(tx, unknown)


def _times(sent: SendRow | None) -> int:
    return 0 if sent is None else sent.times


def _is_free(channel: ChannelRow, now: float) -> bool:
    """Return whether a message may be sent on a channel now.

    A time that is too far ahead was stored before the clock was set back, and is ignored.
    """
    until, retry = channel.claimed_until, channel.retry_at
    is_claimed = until is not None and now < until <= now + CLAIM_SECONDS
    waits = retry is not None and now < retry <= now + BACKOFF_SECONDS[-1]
    return not is_claimed and not waits
