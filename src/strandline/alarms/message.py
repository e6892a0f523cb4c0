"""Messages about alarms: as JSON, as the text of a chat, and as a mail.

A message is about one or more alarms. Each of them has a key that stays the same when the message is sent
again, because the process that sent it was killed before it could note that. Receivers that must not see an
alarm twice compare these keys.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any

from strandline.alarms.channel import MailChannel
from strandline.catalog.alarms import Alarm, SendRow
from strandline.names import count

SHOWN = 20
"""Maximum number of alarms that a text lists. The JSON has all of the message."""
LONGEST = 2000
"""Maximum number of characters of a sentence in a text."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """The part of a message about one alarm.

    Attributes:
        event: ``raised``, ``repeated`` or ``resolved``; ``test`` in a test message.
        key: The same in every attempt to send this item.
        sent: The last message about the alarm on the channel before this one.
    """

    event: str
    key: str
    alarm: Alarm
    sent: SendRow | None = None

    @property
    def line(self) -> str:
        level = self.alarm.level
        told = {"raised": level, "repeated": f"still {level}"}.get(self.event, self.event)
        return _one_line(f"{told}: {self.alarm.subject}: {self.alarm.message}")

    def body(self) -> dict[str, Any]:
        alarm = self.alarm
        return {
            "key": self.key,
            "event": self.event,
            "kind": alarm.kind,
            "subject": alarm.subject,
            "level": alarm.level,
            "message": alarm.message,
            "hint": alarm.hint,
            "number": alarm.number,
            "raised_at": _moment(alarm.raised_at),
            "cleared_at": None if alarm.cleared_at is None else _moment(alarm.cleared_at),
            "times_sent": alarm.times_sent,
        }


@dataclass(frozen=True, kw_only=True)
class AlarmMessage:
    """A message on a channel.

    Attributes:
        warehouse: Id of the warehouse.
        place: Location of the warehouse.
    """

    warehouse: str
    place: str
    time: float
    items: Sequence[Item]

    @property
    def key(self) -> str:
        """The idempotency key of the message: the same if it is about the same items."""
        return digest_of(*(item.key for item in self.items))

    @property
    def title(self) -> str:
        """The title of the message, on one line."""
        if len(self.items) == 1:
            return f"Strandline: {self.items[0].line}"
        events = Counter(item.event for item in self.items)
        told = ", ".join(f"{number} {event}" for event, number in events.items())
        return f"Strandline: {count(len(self.items), 'alarm')}: {told}"

    def lines(self) -> list[str]:
        """Return a line for each alarm with what to do, without those above ``SHOWN``."""
        found = []
        for item in self.items[:SHOWN]:
            found.append(item.line)
            if item.event != "resolved":
                found.append(_one_line(f"    {item.alarm.hint}", keep=4))
        if len(self.items) > SHOWN:
            found.append(f"and {len(self.items) - SHOWN} more: strandline alarms list")
        return found

    def as_json(self) -> bytes:
        """Return the body for a webhook."""
        body = {
            "version": 1,
            "key": self.key,
            "warehouse": self.warehouse,
            "location": self.place,
            "time": _moment(self.time),
            "title": self.title,
            "alarms": [item.body() for item in self.items],
        }
        return json.dumps(body).encode()

    def as_chat(self) -> bytes:
        """Return the body for receivers that take the format of Slack's incoming webhooks."""
        lines = self.lines()[1:] if len(self.items) == 1 else self.lines()
        text = "\n".join(map(_plain, [self.title, *lines, f"Warehouse: {_one_line(self.place)}"]))
        return json.dumps({"text": text}).encode()

    def as_mail(self, channel: MailChannel) -> EmailMessage:
        """Return the mail. The values of its headers are single lines."""
        mail = EmailMessage()
        mail["From"] = channel.sender
        mail["To"] = ", ".join(channel.recipients)
        mail["Subject"] = _one_line(self.title)[:200]
        mail["Date"] = format_datetime(datetime.fromtimestamp(self.time, timezone.utc))
        mail["Message-ID"] = f"<{self.key}@strandline.invalid>"
        mail["Auto-Submitted"] = "auto-generated"
        mail["X-Strandline-Key"] = self.key
        mail.set_content("\n".join([*self.lines(), "", f"Warehouse: {_one_line(self.place)}", ""]))
        return mail


def digest_of(*parts: object) -> str:
    """Return 32 hex digits that identify the parts."""
    return hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()[:32]


def _one_line(text: str, *, keep: int = 0) -> str:
    """Return a text without line feeds and control characters, so that it cannot pretend to be another line.

    Args:
        keep: Number of spaces to keep at the beginning.
    """
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " " * keep + " ".join(printable.split())[:LONGEST]


def _plain(text: str) -> str:
    """Escape the characters with which a chat marks mentions and links."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _moment(time: float) -> str:
    return datetime.fromtimestamp(time, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
