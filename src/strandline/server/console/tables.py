"""The data of the pages of directories and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline import CommitEvent, SegmentInfo, VersionEvent, names
from strandline.server.console import pictures
from strandline.server.console.client import PageClient
from strandline.server.console.formats import size
from strandline.server.console.views import Page, page_of

EVENTS = 12
"""Commits and versions on the page of a table."""


@dataclass(frozen=True, kw_only=True)
class DirectoryPage:
    """Data of the page of a directory: its entries, and the directories above it."""

    path: str
    above: Sequence[tuple[str, str]]
    entries: Page[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class TablePage:
    """Data of the page of a table."""

    described: Mapping[str, Any]
    above: Sequence[tuple[str, str]]
    indexes: Sequence[Mapping[str, Any]]
    streams: Sequence[Mapping[str, Any]]
    segments: Sequence[SegmentInfo]
    pieces: Sequence[pictures.DividedPiece]
    history: Sequence[CommitEvent]
    versions: Sequence[VersionEvent]

    @property
    def segment_text(self) -> str:
        """The picture of the segments in words."""
        bases = [each for each in self.segments if each.role == "base"]
        logs = [each for each in self.segments if each.role == "log"]
        return "; ".join(
            f"{names.count(len(of), kind)}, {size(sum(each.bytes for each in of))}"
            for of, kind in ((bases, "base segment"), (logs, "log segment"))
            if of
        )


def read_directory(client: PageClient, path: str, page: int) -> DirectoryPage:
    found = client.call("Database.overview", path=path)
    shown = [each for each in found if not names.is_backup(each["path"])]
    shown.sort(key=lambda each: (each["type"] != "directory", each["name"]))
    return DirectoryPage(path=path, above=_above(path), entries=page_of(shown, page))


def _above(path: str) -> list[tuple[str, str]]:
    return [(directory, directory.rpartition("/")[2]) for directory in names.above(path)]


def read_table(client: PageClient, described: Mapping[str, Any]) -> TablePage:
    """Return the data of the page of a table that was described."""
    path = described["path"]
    below = client.call("Database.ls", path=path)
    segments: list[SegmentInfo] = client.call("Table.segments", path=path)
    return TablePage(
        described=described,
        above=_above(path),
        indexes=[
            {**client.call("Database.describe", path=f"{path}/{index['name']}"), **index}
            for index in described["indexes"]
        ],
        streams=[
            {**client.call("Database.describe", path=entry.path), "name": entry.name}
            for entry in below
            if entry.type == "stream"
        ],
        segments=segments,
        pieces=pictures.divide([segment.bytes for segment in segments]),
        history=client.call("Table.history", path=path, limit=EVENTS),
        versions=client.call("Database.versions", path=path)[: -EVENTS - 1 : -1],
    )
