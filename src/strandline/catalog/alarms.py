"""Alarms, the last message about each of them on each channel, and claims of channels.

A channel sends one message at a time: its row names the process that may send, until the claim expires. The
watch is one row that names the process that looks for problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, and_, bindparam, delete, func, insert, or_, select

from strandline.catalog import sqltables
from strandline.catalog.transactions import Writer

RAISED, REPEATED, RESOLVED = "raised", "repeated", "resolved"

_ALARM = sqltables.alarms.c
_SEND = sqltables.alarm_sends.c


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """An alarm.

    Attributes:
        number: how often it was raised.
        cleared_at: the time when its condition ended. None: the alarm is open.
        last_sent: the time of the last message about it on any channel.
        times_sent: the number of messages about it since it was raised, over all channels.
    """

    kind: str
    subject: str
    number: int
    level: str
    message: str
    hint: str
    raised_at: float
    cleared_at: float | None = None
    acknowledged_at: float | None = None
    acknowledged_by: str | None = None
    last_sent: float | None = None
    times_sent: int = 0

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.subject


@dataclass(frozen=True, kw_only=True)
class SendRow:
    """The last message about an alarm on a channel.

    Attributes:
        number: the ``number`` of the alarm at that time.
        event: ``raised``, ``repeated`` or ``resolved``.
        level: the level of the alarm at that time.
        times: the number of messages about the alarm on the channel, without this one if it is not ``sure``.
        sure: whether the receiver accepted the message. False: it is being sent, or its sender was killed, or
            there was no answer in time.
    """

    kind: str
    subject: str
    channel: str
    number: int
    event: str
    level: str
    time: float
    times: int
    sure: bool


@dataclass(frozen=True, kw_only=True)
class ChannelRow:
    """The state of a channel.

    Attributes:
        claimed_by: the sender that may use the channel until ``claimed_until``. None: no sender uses it.
        failures: number of failed attempts since the last success.
        failed_since: the time of the first of them.
        retry_at: the time of the next attempt.
        note: why the last attempt failed.
    """

    name: str
    claimed_by: str | None = None
    claimed_until: float | None = None
    failures: int = 0
    failed_since: float | None = None
    retry_at: float | None = None
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class WatchRow:
    """The process that looks for problems.

    Attributes:
        round: number of times that a process has looked. It identifies the present round.
        next_at: the time of the next round.
        until: the time from which on another process may take over.
    """

    holder: str
    round: int
    next_at: float
    until: float


def list_alarms(conn: Connection, *, cleared: bool = False) -> list[Alarm]:
    """Return the open alarms, latest first; with ``cleared`` also those that were cleared."""
    found = select(sqltables.alarms).order_by(_ALARM.raised_at.desc(), _ALARM.kind, _ALARM.subject)
    rows = conn.execute(found if cleared else found.where(_ALARM.cleared_at.is_(None)))
    return [Alarm(**row._mapping) for row in rows]


def find(conn: Connection, kind: str, subject: str) -> Alarm | None:
    row = conn.execute(
        select(sqltables.alarms).where(_ALARM.kind == kind, _ALARM.subject == subject)
    ).one_or_none()
    return None if row is None else Alarm(**row._mapping)


def list_pending(conn: Connection, channel: str) -> list[tuple[Alarm, SendRow | None]]:
    """Return the alarms about which a message on a channel may be due, oldest first.

    These are the open alarms, and cleared alarms whose end was not sent on the channel. Each comes with the
    last message about it on the channel.
    """
    is_same = and_(_SEND.kind == _ALARM.kind, _SEND.subject == _ALARM.subject, _SEND.channel == channel)
    sent = [column.label(f"sent_{column.name}") for column in _SEND]
    rows = conn.execute(
        select(sqltables.alarms, *sent)
        .join_from(sqltables.alarms, sqltables.alarm_sends, is_same, isouter=True)
        .where(or_(_ALARM.cleared_at.is_(None), _SEND.event != RESOLVED, _SEND.sure.is_(False)))
        .order_by(_ALARM.raised_at, _ALARM.kind, _ALARM.subject)
    )
    return [(_part(Alarm, row, ""), _sent(row)) for row in rows]


def _sent(row: Any) -> SendRow | None:
    return None if row.sent_kind is None else _part(SendRow, row, "sent_")


def _part(kind: type[Any], row: Any, prefix: str) -> Any:
    return kind(**{name: row._mapping[prefix + name] for name in kind.__dataclass_fields__})


def put_alarms(tx: Writer, rows: Sequence[Alarm]) -> None:
    """Insert alarms, or replace the alarms with the same kind and subject."""
    _put(tx, sqltables.alarms, rows)


def put_sends(tx: Writer, rows: Sequence[SendRow]) -> None:
    """Insert last messages, or replace those of the same alarm and channel."""
    _put(tx, sqltables.alarm_sends, rows)


def remove_sends(tx: Writer, rows: Sequence[SendRow]) -> None:
    """Delete last messages."""
    _remove(tx, sqltables.alarm_sends, [vars(row) for row in rows])


def find_channel(conn: Connection, name: str) -> ChannelRow:
    """Return the state of a channel. A channel without a row has never been used."""
    at = sqltables.alarm_channels.c
    row = conn.execute(select(sqltables.alarm_channels).where(at.name == name)).one_or_none()
    return ChannelRow(name=name) if row is None else ChannelRow(**row._mapping)


def list_channels(conn: Connection) -> list[ChannelRow]:
    """Return the channels that were used, by name."""
    found = select(sqltables.alarm_channels).order_by(sqltables.alarm_channels.c.name)
    return [ChannelRow(**row._mapping) for row in conn.execute(found)]


def put_channel(tx: Writer, row: ChannelRow) -> None:
    """Insert the state of a channel, or replace it."""
    _put(tx, sqltables.alarm_channels, [row])


def find_watch(conn: Connection) -> WatchRow | None:
    at = sqltables.alarm_watch.c
    row = conn.execute(select(at.holder, at.round, at.next_at, at.until)).one_or_none()
    return None if row is None else WatchRow(**row._mapping)


def put_watch(tx: Writer, row: WatchRow) -> None:
    tx.conn.execute(delete(sqltables.alarm_watch))
    tx.conn.execute(insert(sqltables.alarm_watch), {"id": 1, **vars(row)})


def count_open(conn: Connection) -> dict[tuple[str, str], int]:
    """Return the number of open alarms by kind and level."""
    rows = conn.execute(
        select(_ALARM.kind, _ALARM.level, func.count())
        .where(_ALARM.cleared_at.is_(None))
        .group_by(_ALARM.kind, _ALARM.level)
    )
    return {(kind, level): number for kind, level, number in rows}


def forget(tx: Writer, before: float, most: int) -> int:
    """Delete at most ``most`` alarms that were cleared before a time; return their number."""
    rows = tx.conn.execute(
        select(_ALARM.kind, _ALARM.subject)
        .where(_ALARM.cleared_at < before)
        .order_by(_ALARM.cleared_at)
        .limit(most)
    )
    old = [{"a_kind": kind, "a_subject": subject} for kind, subject in rows]
    for table in (sqltables.alarms, sqltables.alarm_sends) if old else ():
        at = table.c
        is_old = and_(at.kind == bindparam("a_kind"), at.subject == bindparam("a_subject"))
        tx.conn.execute(delete(table).where(is_old), old)
    return len(old)


def _put(tx: Writer, table: Table, rows: Iterable[Any]) -> None:
    """Insert rows, or replace the rows with the same primary key."""
    given = [vars(row) for row in rows]
    if given:
        _remove(tx, table, given)
        tx.conn.execute(insert(table), given)


def _remove(tx: Writer, table: Table, given: Sequence[Mapping[str, Any]]) -> None:
    """Delete the rows with the primary keys of the given ones."""
    keys = [column.name for column in table.primary_key]
    is_there = and_(*(table.c[name] == bindparam(f"a_{name}") for name in keys))
    if given:
        tx.conn.execute(delete(table).where(is_there), [{f"a_{n}": row[n] for n in keys} for row in given])
