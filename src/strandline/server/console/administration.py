"""The data of the pages of schedules, of the audit log and of settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from strandline import AuditEntry, ScheduleInfo, ScheduleRun
from strandline.alarms.channel import MailChannel, WebChannel, read_channels
from strandline.errors import mask_urls
from strandline.server.console.client import PageClient
from strandline.server.console.formats import period
from strandline.server.console.views import PAGE
from strandline.server.settings import ServerSettings
from strandline.settings import SHARED

_HIDDEN = ("secret", "password", "token", "key", "credential", "sas", "signature")
"""Parts of the names of options whose values are secret."""
RUNS = 50
"""Runs on the page of a schedule."""


@dataclass(frozen=True, kw_only=True)
class SchedulePage:
    """Data of the page of a schedule: its settings by name as text, and its runs, latest first."""

    info: ScheduleInfo
    facts: Sequence[tuple[str, str]]
    runs: Sequence[ScheduleRun]


def read_schedule(client: PageClient, name: str) -> SchedulePage:
    info: ScheduleInfo = client.call("Schedule.info", schedule=name)
    facts = {
        "Full backups": info.full or "never",
        "Increments": info.incremental or "never",
        "Verifications": info.verify or "never",
        "Trial restores": info.drill or "never",
        "Time zone": info.timezone,
        "Level of verifications": info.level,
        "Sample": "objects not verified before" if info.sample is None else f"{info.sample} %",
        "If a run was missed": info.missed,
        "If the last run still goes on": info.overlap,
        "Retries": f"{info.retries}, the first after {period(info.retry_seconds)}",
    }
    runs = client.call("Schedule.runs", schedule=name, limit=RUNS)
    return SchedulePage(info=info, facts=list(facts.items()), runs=runs)


@dataclass(frozen=True, kw_only=True)
class AuditPage:
    """A page of the audit log. ``before`` continues the list; None: there is no older entry."""

    items: Sequence[AuditEntry]
    before: int | None
    is_first: bool


def read_audit(client: PageClient, before: str) -> AuditPage:
    start = int(before) if before.isdecimal() and len(before) < 19 else None
    found: list[AuditEntry] = client.call("Database.audit", before=start, limit=PAGE + 1)
    return AuditPage(
        items=found[:PAGE],
        before=found[PAGE - 1].id if len(found) > PAGE else None,
        is_first=start is None,
    )


@dataclass(frozen=True, kw_only=True)
class SettingGroup:
    """Settings of one kind: rows of name, value and where the value comes from."""

    title: str
    note: str
    rows: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, kw_only=True)
class ChannelLine:
    """A channel of alarms. ``target``: where its messages go, without secrets."""

    name: str
    type: str
    level: str
    target: str


@dataclass(frozen=True, kw_only=True)
class SettingsPage:
    """Data of the page of settings."""

    channels: Sequence[ChannelLine]
    groups: Sequence[SettingGroup]


def read_settings(client: PageClient, service: ServerSettings) -> SettingsPage:
    """Return all settings and the channels of alarms, with secrets masked."""
    client.principal.require("admin")
    client.principal.require_all_paths()
    channels = read_channels(client.db._runtime.settings).values()
    lines = [ChannelLine(name=c.name, type=c.type, level=c.level, target=_target(c)) for c in channels]
    return SettingsPage(channels=lines, groups=_read_groups(client, service))


def _target(channel: WebChannel | MailChannel) -> str:
    if isinstance(channel, MailChannel):
        return f"{', '.join(channel.recipients)} by {channel.host}:{channel.port}"
    if channel.url.text is not None:  # Often the path of the address is a secret.
        return urlsplit(channel.url.text).hostname or "–"
    where = f"file {channel.url.file}" if channel.url.file else f"environment variable {channel.url.variable}"
    return f"the address in the {where}"


def _read_groups(client: PageClient, service: ServerSettings) -> list[SettingGroup]:
    stored = client.db.sql("SHOW WAREHOUSE").rows()
    return [
        SettingGroup(
            title="Warehouse",
            note="All processes share them. ALTER WAREHOUSE SET (...) changes them.",
            rows=[(str(name), _text(value), str(source)) for name, value, source in stored],
        ),
        SettingGroup(
            title="Process",
            note="Settings of this process. strandline.toml and environment variables change them.",
            rows=list(_rows(client.db._runtime.settings, skip=(*SHARED, "channels"))),
        ),
        SettingGroup(
            title="Service", note="Options of strandline serve.", rows=list(_rows(service, skip=()))
        ),
    ]


def _rows(settings: Any, skip: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    default = asdict(type(settings)())
    for setting in fields(settings):
        if setting.name in skip:
            continue
        value = getattr(settings, setting.name)
        source = "default" if value == default[setting.name] else "set"
        if isinstance(value, dict):
            for name, text in sorted(value.items()):
                yield f"{setting.name}.{name}", _mask(name, text), source
        elif setting.name.endswith("_command"):
            yield setting.name, "–" if value is None else "(a command)", source
        else:
            yield setting.name, _text(value), source


def _mask(name: str, text: str) -> str:
    return "***" if any(word in name.lower() for word in _HIDDEN) else mask_urls(text)


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,g}"
    return mask_urls(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))
