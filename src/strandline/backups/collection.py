"""Backup collections: tables, settings, and requests for operations on them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

from strandline import names
from strandline.errors import AlreadyExists, InvalidArgument, PathNotFound
from strandline.names import did_you_mean
from strandline.records import Record, later, stored_as
from strandline.settings import Limits
from strandline.sql.durations import normal_period, parse_period
from strandline.sql.options import read_boolean
from strandline.sql.retention_rules import parse_keep
from strandline.storage.bucket import SCHEMES, bucket_of, is_url

BackupKind: TypeAlias = Literal["full", "incremental"]

CLUSTER = "cluster"
"""Value of STORAGE for backups that are kept in the warehouse."""
STORAGE, INCREMENTAL, OMIT = "STORAGE", "INCREMENTAL_BACKUP_ENABLED", "OMIT_INDEXES"
RETENTION, MINIMUM = "RETENTION", "MINIMUM"
MAX_CHAIN, COMPACT_CHAIN = "MAX_CHAIN", "COMPACT_CHAIN"
RPO, PROVED_WITHIN = "RPO", "PROVED_WITHIN"
ENCRYPTION, REPOSITORY = "ENCRYPTION", "REPOSITORY"
CHECK = "CHECK"
"""Option of CREATE and ALTER BACKUP COLLECTION: check the location first. The option is not stored."""


@dataclass(frozen=True, kw_only=True)
class CollectionRequest(Record):
    """Request of an operation that needs only the name of a collection.

    Attributes:
        because: Why a full backup is taken although an increment was requested.
        limits: Limits of the upload or compaction that follows a backup.
    """

    collection: str
    because: str | None = later()
    limits: Limits = later(Limits())


@dataclass(frozen=True, kw_only=True)
class SendRequest(Record):
    """Request to upload backups to a repository.

    Attributes:
        backup: Name of the backup. None: the last one.
        url: Location of the repository. None: the repository of the collection.
        encryption: Whether the repository is encrypted. None: the setting of the collection applies.
        taken_by: Id of the BACKUP operation that took the backup. After the upload, the retention rules are
            applied, and their outcome is also written into the result of that operation. None: no
            BACKUP operation has started the upload.
    """

    collection: str
    backup: str | None = None
    url: str | None = None
    encryption: bool | None = None
    limits: Limits = later(Limits())
    taken_by: str | None = later()


@dataclass(frozen=True, kw_only=True)
class Retained(Record):
    """Result of an operation after which retention rules are applied.

    Attributes:
        retention: The rules. None: no rules are applied.
        removed: Backups that were removed.
        not_removed: Why the rules could not be applied. None: no error.
    """

    retention: str | None = later()
    removed: tuple[str, ...] | None = later()
    not_removed: str | None = later()


@dataclass(frozen=True, kw_only=True)
class BackupResult(Retained):
    """Result of a backup.

    Attributes:
        tables: Number of tables.
        rows: Number of rows, without those of indexes.
        because: Why it is a full backup although an increment was requested.
    """

    backup: str
    step: int
    tables: int
    rows: int
    bytes: int
    because: str | None = later()
    warning: str | None = later()


@dataclass(frozen=True, kw_only=True)
class CompactRequest(Record):
    """Request to compact the chain of a backup.

    Attributes:
        backup: Name of the backup. None: the last one.
        limits: Limits of the copying. None: the limits of the settings apply.
    """

    collection: str
    backup: str | None = None
    limits: Limits | None = later()


@dataclass(frozen=True, kw_only=True)
class MergeRequest(Record):
    """Request to merge neighbouring increments of the chain of a backup.

    Attributes:
        backup: Last backup of the chain. None: the last one of the collection.
        first: Name of the first backup that may be merged. None: all increments of the chain may be merged.
        limits: Limits of the copying. None: the limits of the settings apply.
    """

    collection: str
    backup: str | None = None
    first: str | None = None
    limits: Limits | None = later()


@dataclass(frozen=True, kw_only=True)
class CollectionSettings:
    """The settings of a collection, stored under the names that statements use.

    Attributes:
        retention: Retention rules as text. None: all backups are kept.
        minimum: Number of newest full backups that are always kept, with all backups that build on them.
        max_chain: Maximum number of backups in a chain, including the full one. None: no limit.
        compact_chain: Compact a chain automatically when it reaches ``max_chain``.
        rpo: Maximum age of the newest backup that can be restored from the storage, such as ``26h``. None: no
            objective.
        proved_within: Maximum age of the newest successful verification of its chain, such as ``7d``. None:
            no objective.
    """

    storage: str = stored_as(default=CLUSTER, name=STORAGE)
    incremental: bool = stored_as(default=False, name=INCREMENTAL)
    omit_indexes: bool = stored_as(default=False, name=OMIT)
    encryption: bool = stored_as(default=False, name=ENCRYPTION, later=True)
    retention: str | None = stored_as(default=None, name=RETENTION, later=True)
    minimum: int = stored_as(default=1, name=MINIMUM, later=True)
    max_chain: int | None = stored_as(default=None, name=MAX_CHAIN, later=True)
    compact_chain: bool = stored_as(default=False, name=COMPACT_CHAIN, later=True)
    rpo: str | None = stored_as(default=None, name=RPO, later=True)
    proved_within: str | None = stored_as(default=None, name=PROVED_WITHIN, later=True)

    @property
    def rpo_seconds(self) -> float | None:
        return None if self.rpo is None else parse_period(self.rpo)

    @property
    def proved_within_seconds(self) -> float | None:
        return None if self.proved_within is None else parse_period(self.proved_within)


@dataclass(frozen=True, kw_only=True)
class CollectionRecord(Record):
    """A backup collection.

    Attributes:
        tables: Paths of its tables. None: each backup has all tables that exist when it is taken, except
            those below ``.backups`` and ``.replaced``.
        dropped: Name of the backup that was the last one when it or the whole collection was dropped. No new
            backup gets this name, and no increment continues this backup or an earlier one. None: neither
            the last backup nor the collection was dropped.
        attached: The repository belongs to another collection, of this or another warehouse, so this
            collection is read-only.
        leaving: Dropped or merged backups whose manifests are still in the repository, oldest first.
        repository: Id of the repository. A repository with another id is refused.
        key: Fingerprint of the user's key that opened the repository at the last upload or ATTACH.
    """

    tables: tuple[str, ...] | None
    settings: CollectionSettings = CollectionSettings()
    dropped: str | None = later()
    attached: bool = later(False)
    leaving: tuple[str, ...] = later(())
    repository: str | None = later()
    key: str | None = later()

    def goes_on_after(self, backup: str) -> bool:
        """Return True if increments may continue this backup after it was restored.

        Only a chain in a repository can be continued. A chain in the warehouse ends when a restore replaces
        its tables.
        """
        is_open = self.dropped is None or self.dropped < backup
        is_kept = self.settings.incremental and self.settings.storage != CLUSTER
        return is_kept and is_open and not self.attached

    @staticmethod
    def of(tables: Sequence[str] | None, settings: Iterable[tuple[str, Any]]) -> CollectionRecord:
        if tables is not None:
            for path, number in Counter(tables).items():
                if number > 1:
                    raise InvalidArgument(f"the collection names table {path} twice", "Name each table once.")
                names.check_place(path)
        given = list(settings)
        if STORAGE not in [name for name, _ in given]:
            raise InvalidArgument(
                "a backup collection needs the setting STORAGE",
                "Add STORAGE = 'cluster' to WITH (...), or the folder or URL of a repository.",
            )
        return CollectionRecord(tables=None if tables is None else tuple(tables)).with_settings(given)

    def with_settings(self, settings: Iterable[tuple[str, Any]]) -> CollectionRecord:
        changed = self.settings
        seen: set[str] = set()
        for name, value in settings:
            check_setting(name)
            if name in seen:
                raise InvalidArgument(f"the setting {name} is given twice", "Give each setting once.")
            seen.add(name)
            field, read = _SETTINGS[name]
            changed = replace(changed, **{field: read(name, value)})
        if changed.encryption and changed.storage == CLUSTER and not seen.isdisjoint((STORAGE, ENCRYPTION)):
            raise InvalidArgument(
                "ENCRYPTION is for repositories: what is kept in the warehouse is not encrypted",
                "Name the folder or URL of a repository as STORAGE, or leave ENCRYPTION out.",
            )
        if changed.storage != self.settings.storage:
            return replace(self, settings=changed, repository=None, key=None)
        return replace(self, settings=changed)

    def without_settings(self, names: Iterable[str]) -> CollectionRecord:
        changed = self.settings
        seen: set[str] = set()
        for name in names:
            check_setting(name)
            if name in seen:
                raise InvalidArgument(f"the setting {name} is named twice", "Name each setting once.")
            seen.add(name)
            if name == STORAGE:
                raise InvalidArgument("STORAGE has no default", "Set it to 'cluster', or to another place.")
            field, _ = _SETTINGS[name]
            changed = replace(changed, **{field: getattr(CollectionSettings(), field)})
        return replace(self, settings=changed)

    def with_table(self, path: str) -> CollectionRecord:
        names.check_place(path)
        if path in self._explicit():
            raise AlreadyExists(f"table {path} is in the collection already")
        return replace(self, tables=(*self._explicit(), path))

    def without_table(self, path: str) -> CollectionRecord:
        if path not in self._explicit():
            raise PathNotFound(f"table {path} is not in the collection", did_you_mean(path, self._explicit()))
        return replace(self, tables=tuple(p for p in self._explicit() if p != path))

    def _explicit(self) -> tuple[str, ...]:
        if self.tables is None:
            raise InvalidArgument(
                "a collection of the whole DATABASE has no list of tables to change",
                "Create a collection that names its tables.",
            )
        return self.tables


def storage_of(value: str) -> str:
    """Return the normal form of a STORAGE value: 'cluster', the full path of a folder, or a URL.

    All other values are refused, so that a mistyped word does not create a folder.
    """
    if value.lower() == CLUSTER:
        return CLUSTER
    text = unquote(value.removeprefix("file://")) if value.startswith("file:///") else value
    if is_url(text):
        return bucket_of(text).url
    path = os.path.expanduser(text)
    if not os.path.isabs(path) or "\0" in path:
        raise InvalidArgument(
            f"STORAGE cannot be {value!r}",
            "Write 'cluster' for the warehouse itself, the full path of a folder, or a URL with "
            f"{', '.join(f'{scheme}://' for scheme in SCHEMES)}.",
        )
    return os.path.normpath(path)


def repository_of(value: str) -> str:
    """Return the normal form of a repository's location. Refuse 'cluster', which is the warehouse."""
    place = storage_of(value)
    if place == CLUSTER:
        raise InvalidArgument(
            "'cluster' is the warehouse itself, not a repository", "Name the full path of a folder, or a URL."
        )
    return place


def repository_id(name: str, value: Any) -> str:
    """Return the normal form of a repository id. Refuse a value that is not an id.

    Args:
        name: Setting that has the value, for the error message.
    """
    text = str(value).strip().lower()
    if not re.fullmatch("[0-9a-f]{32}", text):
        raise InvalidArgument(
            f"{name} cannot be {value!r}",
            "Give the id of the repository: 32 hex digits, which DESCRIBE shows of its collection.",
        )
    return text


def _storage(name: str, value: Any) -> str:
    return storage_of(str(value))


def _rules(name: str, value: Any) -> str:
    return str(parse_keep(str(value)))


def _number(name: str, value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise InvalidArgument(f"{name} must be a number from 1 on, not {value!r}", f"Write {name} = 2.")
    return int(text)


def _period(name: str, value: Any) -> str:
    period = normal_period(str(value))
    if parse_period(period) < 1:
        raise InvalidArgument(f"{name} cannot be {value!r}", f"Give at least a second: {name} = '26h'.")
    return period


_SETTINGS: Mapping[str, tuple[str, Callable[[str, Any], Any]]] = {
    STORAGE: ("storage", _storage),
    INCREMENTAL: ("incremental", read_boolean),
    OMIT: ("omit_indexes", read_boolean),
    ENCRYPTION: ("encryption", read_boolean),
    RETENTION: ("retention", _rules),
    MINIMUM: ("minimum", _number),
    MAX_CHAIN: ("max_chain", _number),
    COMPACT_CHAIN: ("compact_chain", read_boolean),
    RPO: ("rpo", _period),
    PROVED_WITHIN: ("proved_within", _period),
}
"""Field of each setting, and the function that parses its value."""


def check_value(name: str, value: Any) -> None:
    """Refuse a value that the setting ``name`` does not allow."""
    _SETTINGS[name][1](name, value)


def check_setting(name: str) -> None:
    if name not in _SETTINGS:
        raise InvalidArgument(
            f"a backup collection has no setting {name}",
            did_you_mean(name, _SETTINGS) or f"It has {', '.join(_SETTINGS)}.",
        )
