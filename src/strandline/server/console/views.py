"""The data of the overview and of the pages of collections, backups and restores.

The functions call the Python API as the HTTP API does, with the same checks of roles and paths, and return
typed values. Templates only lay them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import accumulate
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from strandline import (
    BackupInfo,
    CollectionInfo,
    Decision,
    OperationInfo,
    RestorePlan,
    Status,
    names,
)
from strandline.backups.health import is_restorable
from strandline.errors import InvalidArgument, PathNotFound, StrandlineError
from strandline.server.console import pictures
from strandline.server.console.client import PageClient
from strandline.server.console.protection import Concern, Protected, concerns_of, protected_of

T = TypeVar("T")

PAGE = 50
"""Rows on one page of a list."""
BACKUPS = 60
"""Backups on one page of a collection."""

Proof: TypeAlias = Literal["proved", "checked", "unverified", "broken"]
"""What verifications say of a backup.

``proved``: all bytes were read, or a trial restore was made. ``checked``: only records, sizes or a sample
were checked. ``unverified``: nothing was checked. ``broken``: it cannot be restored.
"""
_DEEP = ("checksums", "restore")
"""Levels of verification that prove a backup."""


@dataclass(frozen=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list.

    Attributes:
        number: number of the page, from 1 on.
        total: number of items on all pages. None: it is not known.
        first: number of items before this page.
    """

    items: Sequence[T]
    number: int
    has_more: bool
    total: int | None = None
    first: int = 0


def page_of(found: Sequence[T], number: int) -> Page[T]:
    """Return one page of a list that is in memory."""
    number = max(1, min(number, -(-len(found) // PAGE) or 1))
    first = (number - 1) * PAGE
    items = found[first : first + PAGE]
    return Page(items=items, number=number, has_more=first + PAGE < len(found), total=len(found), first=first)


# --- the overview -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Running:
    """The operations that have not ended, newest first."""

    running: Sequence[OperationInfo]


@dataclass(frozen=True, kw_only=True)
class Overview(Running):
    """Data of the overview.

    Attributes:
        status: the status of the warehouse. None: the client is limited to some paths.
        concerns: what needs attention, with the open alarms.
        find: the part of a name that the collections are searched for.
    """

    status: Status | None
    concerns: Sequence[Concern]
    collections: Page[Protected]
    find: str


def read_overview(client: PageClient, find: str, page: int) -> Overview:
    status = client.status()
    if status is None:
        listed = [protected_of(info=info) for info in client.call("Database.collections")]
    else:
        listed = [protected_of(status=each) for each in status.collections]
    if find:
        listed = [each for each in listed if find.lower() in each.name.lower()]
    alarms = client.call("Database.alarms") if client.sees_all and client.offers("Database.alarms") else ()
    return Overview(
        status=status,
        concerns=concerns_of(status.attention if status else (), alarms),
        running=running_operations(client),
        collections=page_of(listed, page),
        find=find,
    )


def running_operations(client: PageClient, collection: str | None = None) -> list[OperationInfo]:
    """Return the operations that have not ended, of a collection or of all, newest first."""
    found: list[OperationInfo] = []
    for state in ("cancelling", "running"):
        found += client.call("Database.operations", state=state)
    found.sort(key=lambda operation: -operation.created)
    return [each for each in found if collection is None or collection_of(each) == collection]


def collection_of(operation: OperationInfo) -> str | None:
    """Return the name of the collection that an operation works on."""
    found = operation.request.get("collection")
    return found if isinstance(found, str) else None


# --- a collection -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ShownBackup:
    """A backup with the results of its verifications.

    Attributes:
        proved_at: time of the verification on which ``proof`` rests.
        because: why the backup cannot be restored.
        chain: number of its chain in the collection, from 0 on.
        place: number of backups that it builds on.
    """

    info: BackupInfo
    proof: Proof
    proved_at: datetime | None
    because: str | None
    chain: int
    place: int


@dataclass(frozen=True, kw_only=True)
class CollectionPage:
    """Data of the page of a collection. Backups are in the order of time."""

    info: CollectionInfo
    protected: Protected
    concerns: Sequence[Concern]
    backups: Page[ShownBackup]
    picture: pictures.TimeLine
    growth: pictures.Curve | None
    total_bytes: int
    running: Sequence[OperationInfo]


def list_backups(client: PageClient, collection: str) -> list[ShownBackup]:
    """Return all backups of a collection with their proofs, oldest first."""
    infos: list[BackupInfo] = client.call("Collection.backups", collection=collection)
    reports = client.call("Database.verified", collection=collection) if infos else {}
    places: dict[str, tuple[int, int]] = {}
    found, chains = [], 0
    for info in infos:
        if info.parent in places:
            chain, place = places[info.parent]
            places[info.name] = chain, place + 1
        else:
            places[info.name] = chains, 0
            chains += 1
        chain, place = places[info.name]
        proof, time, because = _judge(reports.get(info.name, ()))
        found.append(
            ShownBackup(info=info, proof=proof, proved_at=time, because=because, chain=chain, place=place)
        )
    return found


def _judge(reports: Sequence[Mapping[str, Any]]) -> tuple[Proof, datetime | None, str | None]:
    """Return what the verification reports of a backup prove, since when, and why it is broken."""
    if not reports:
        return "unverified", None, None
    if not is_restorable((r["time"], r["level"], r["restorable"]) for r in reports):
        wrong = max((r for r in reports if not r["restorable"]), key=lambda report: report["time"])
        return "broken", _utc(wrong["time"]), wrong["because"]
    proofs = [r["verified_at"] for r in reports if r["level"] in _DEEP and r["verified_at"] is not None]
    if proofs:
        return "proved", _utc(max(proofs)), None
    return "checked", _utc(max(report["time"] for report in reports)), None


def _utc(time: float) -> datetime:
    return datetime.fromtimestamp(time, timezone.utc)


def read_collection(client: PageClient, name: str, page: int) -> CollectionPage:
    """Return the data of a collection's page. Pages count from the newest backups on."""
    info: CollectionInfo = client.call("Collection.info", collection=name)
    backups = list_backups(client, name)
    status = client.status()
    mine = [each for each in status.collections if each.name == name] if status else []
    last = -(-len(backups) // BACKUPS) or 1
    number = max(1, min(page, last))
    end = len(backups) - (number - 1) * BACKUPS
    first = max(0, end - BACKUPS)
    shown = backups[first:end]
    total = list(accumulate(backup.info.bytes for backup in backups))
    return CollectionPage(
        info=info,
        protected=protected_of(status=mine[0]) if mine else protected_of(info=info),
        concerns=concerns_of([each for each in status.attention if each.about == name] if status else (), ()),
        backups=Page(
            items=shown,
            number=number,
            has_more=number < last,
            total=len(backups),
            first=(number - 1) * BACKUPS,
        ),
        picture=pictures.time_line(
            [backup.info.time.timestamp() for backup in shown],
            [backup.info.bytes for backup in shown],
            [backup.chain for backup in shown],
        ),
        growth=pictures.curve([b.info.time.timestamp() for b in backups], total) if backups else None,
        total_bytes=total[-1] if total else 0,
        running=running_operations(client, name),
    )


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What PRUNE would do, newest backup first.

    Attributes:
        rule: the rule as text; empty if the collection has none.
        problem: why the rule cannot be applied. None: ``decisions`` are valid.
        freed: bytes of the backups that would be removed.
    """

    collection: str
    rule: str
    decisions: Sequence[Decision] = ()
    removed: int = 0
    freed: int = 0
    problem: StrandlineError | None = None


def preview_prune(client: PageClient, info: CollectionInfo, rule: str | None) -> Preview:
    """Return what PRUNE with a rule would remove, and why. None: with the collection's own rule."""
    own = "" if info.retention is None else str(info.retention)
    text = (rule or "").strip() or own
    if not text:
        return Preview(collection=info.name, rule="")
    try:
        found: list[Decision] = client.call("Collection.preview_prune", collection=info.name, keep=text)
    except (InvalidArgument, PathNotFound) as error:
        return Preview(collection=info.name, rule=text, problem=error)
    gone = [each for each in found if not each.keep]
    return Preview(
        collection=info.name,
        rule=text,
        decisions=found[::-1],
        removed=len(gone),
        freed=sum(each.bytes or 0 for each in gone),
    )


# --- a backup and its restore -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BackupPart:
    """A table or an index in a backup.

    Attributes:
        rows: rows that the backup itself holds; for an increment these are changes.
        rows_after: rows of the table at the backup's step.
        digest: digest of the table at the backup's step. None: the backup has only the definition.
    """

    path: str
    type: Literal["table", "index"]
    rows: int = 0
    deleted: int = 0
    bytes: int = 0
    rows_after: int | None = None
    digest: str | None = None


@dataclass(frozen=True, kw_only=True)
class BackupPage:
    """Data of the page of a backup.

    Attributes:
        chain: the backups that a restore applies, in order. The last one is the backup itself.
        children: names of the increments that build on it.
        reports: its verification results, latest first.
    """

    collection: str
    backup: ShownBackup
    parts: Sequence[BackupPart]
    chain: Sequence[ShownBackup]
    children: Sequence[str]
    reports: Sequence[Mapping[str, Any]]
    chain_bytes: int


def read_backup(client: PageClient, collection: str, name: str) -> BackupPage:
    client.call("Collection.backup_info", collection=collection, name=name)  # Its error says what to do.
    backups = list_backups(client, collection)
    by_name = {each.info.name: each for each in backups}
    chain = [by_name[name]]
    while (parent := by_name.get(chain[0].info.parent or "")) is not None:
        chain.insert(0, parent)
    reports = client.call("Database.verified", collection=collection).get(name, ())
    return BackupPage(
        collection=collection,
        backup=by_name[name],
        parts=list(list_parts(client, collection, name)),
        chain=chain,
        children=[each.info.name for each in backups if each.info.parent == name],
        reports=sorted(reports, key=lambda report: -report["time"]),
        chain_bytes=sum(each.info.bytes for each in chain),
    )


def list_parts(client: PageClient, collection: str, backup: str) -> Iterator[BackupPart]:
    """Yield the tables and indexes of a backup."""
    place = f"{names.COLLECTIONS}/{collection}/{backup}"
    described = client.collection_database(collection).describe(place)
    for path, table in sorted((described.get("tables") or {}).items()):
        yield _part(path, "table", table["slice"])
        for index in table["indexes"]:
            yield _part(f"{path}/{index['definition']['name']}", "index", index["slice"])


def _part(path: str, type_: Literal["table", "index"], held: Mapping[str, Any] | None) -> BackupPart:
    if held is None:
        return BackupPart(path=path, type=type_)
    rows, digest = held["after"]
    return BackupPart(
        path=path,
        type=type_,
        rows=held["rows"],
        deleted=held["tombstones"],
        bytes=held["bytes"],
        rows_after=rows,
        digest=digest,
    )


USE, TO = "use ", "to "
"""Beginnings of the names of a restore form's fields; the path of a table follows."""
RESTORED = "_restored"
"""End of the name that is suggested for a restored table if the table exists."""


@dataclass(frozen=True, kw_only=True)
class RestoreChoice:
    """What a restore form asks for.

    Attributes:
        tables: for each table of the backup, the path to restore it to. None: it is not restored.
        replace: replace existing tables.
        read_again: read the restored data again before it becomes visible.
    """

    tables: Mapping[str, str | None]
    replace: bool
    read_again: bool

    @property
    def wanted(self) -> dict[str, str]:
        """The tables to restore."""
        return {path: to for path, to in self.tables.items() if to is not None}


@dataclass(frozen=True, kw_only=True)
class RestorePage:
    """Data of the page of a restore: the form, and the plan or the reason why there is none.

    Attributes:
        suggested: the names in ``choice`` are suggestions, because the tables of the backup exist.
    """

    collection: str
    backup: BackupInfo
    choice: RestoreChoice
    suggested: bool
    plan: RestorePlan | None
    problem: StrandlineError | None


def read_choice(tables: Sequence[str], given: Mapping[str, str]) -> RestoreChoice:
    """Read the fields of a restore form. An empty form restores all tables to their own paths."""
    is_empty = not any(name.startswith((USE, TO)) for name in given)
    return RestoreChoice(
        tables={
            path: (given.get(f"{TO}{path}", "").strip() or path)
            if is_empty or f"{USE}{path}" in given
            else None
            for path in sorted(tables)
        },
        replace="replace" in given,
        read_again="read_again" in given,
    )


def plan_restore(client: PageClient, collection: str, backup: str, given: Mapping[str, str]) -> RestorePage:
    """Return the plan of a restore. Nothing is changed.

    For an empty form, suggest other names for tables that exist.
    """
    info: BackupInfo = client.call("Collection.backup_info", collection=collection, name=backup)
    choice, suggested = read_choice(info.tables, given), False
    plan: RestorePlan | None = None
    problem: StrandlineError | None = None
    try:
        plan = _plan(client, collection, backup, choice)
        if not given and not plan.is_possible:
            blocked = {table.source for table in plan.tables if table.blocked_by is not None}
            other = {path: f"{path}{RESTORED}" if path in blocked else path for path in choice.tables}
            better = RestoreChoice(tables=other, replace=False, read_again=False)
            found = _plan(client, collection, backup, better)
            if found.is_possible:
                choice, plan, suggested = better, found, True
    except StrandlineError as error:
        problem = error if plan is None else None
    return RestorePage(
        collection=collection, backup=info, choice=choice, suggested=suggested, plan=plan, problem=problem
    )


def _plan(client: PageClient, collection: str, backup: str, choice: RestoreChoice) -> RestorePlan:
    if not choice.wanted:
        raise InvalidArgument("no table is chosen", "Choose at least one table.")
    plan: RestorePlan = client.call(
        "Collection.plan_restore",
        collection=collection,
        at=backup,
        tables=choice.wanted,
        replace=choice.replace,
    )
    return plan


def start_restore(
    client: PageClient, collection: str, backup: str, given: Mapping[str, str]
) -> OperationInfo:
    """Start the restore that a form asks for."""
    info: BackupInfo = client.call("Collection.backup_info", collection=collection, name=backup)
    choice = read_choice(info.tables, given)
    started: OperationInfo = client.call(
        "Collection.restore",
        collection=collection,
        at=backup,
        tables=choice.wanted,
        replace=choice.replace,
        verify="data" if choice.read_again else "digests",
    )
    return started
