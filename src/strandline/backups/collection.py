"""What a backup collection is: its tables and its settings; and what is asked for of it."""

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
from strandline.records import Record, kept, later
from strandline.settings import Limits
from strandline.sql.keep import parse_keep
from strandline.storage.bucket import SCHEMES, bucket_of, is_url

BackupKind: TypeAlias = Literal["full", "incremental"]

CLUSTER = "cluster"
"""The storage of a collection whose backups are kept in the warehouse."""
STORAGE, INCREMENTAL, OMIT = "STORAGE", "INCREMENTAL_BACKUP_ENABLED", "OMIT_INDEXES"
RETENTION, MINIMUM = "RETENTION", "MINIMUM"
MAX_CHAIN, COMPACT_CHAIN = "MAX_CHAIN", "COMPACT_CHAIN"
ENCRYPTION, REPOSITORY = "ENCRYPTION", "REPOSITORY"
CHECK = "CHECK"
"""Of CREATE and ALTER BACKUP COLLECTION: whether the place is tried. It is not kept."""


@dataclass(frozen=True, kw_only=True)
class CollectionRequest(Record):
    """What is asked for by those who name a collection and nothing else. ``because``: why a full backup is
    taken, though an increment was asked for. ``limits``: those of sending it."""

    collection: str
    because: str | None = later()
    limits: Limits = later(Limits())


@dataclass(frozen=True, kw_only=True)
class SendRequest(Record):
    """Backups are to be sent to a repository. ``backup`` None: the last one. ``url`` None: the repository is
    that of the collection. ``encryption``: it is to be encrypted; None: as that of the collection is.
    ``taken_by``: the operation that has taken it, and whose result tells what its rules remove then."""

    collection: str
    backup: str | None = None
    url: str | None = None
    encryption: bool | None = None
    limits: Limits = later(Limits())
    taken_by: str | None = later()


@dataclass(frozen=True, kw_only=True)
class Retained(Record):
    """The result of an operation after which rules are applied. ``retention``: the rules; ``removed``: the
    backups that they did not keep; ``not_removed``: why that was not possible."""

    retention: str | None = later()
    removed: tuple[str, ...] | None = later()
    not_removed: str | None = later()


@dataclass(frozen=True, kw_only=True)
class BackupResult(Retained):
    """``tables`` and ``rows`` count, ``rows`` without those of indexes. ``because``: why it is a full one,
    though an increment was asked for."""

    backup: str
    step: int
    tables: int
    rows: int
    bytes: int
    because: str | None = later()
    warning: str | None = later()


@dataclass(frozen=True, kw_only=True)
class CompactRequest(Record):
    """The chain of a backup is to be folded into it. ``backup`` None: the last one. ``limits`` None: those of
    the settings."""

    collection: str
    backup: str | None = None
    limits: Limits | None = later()


@dataclass(frozen=True, kw_only=True)
class MergeRequest(Record):
    """Neighbouring increments that lead to a backup are to become one each. ``backup`` None: the last one.
    ``first``: those before it stay as they are; None: all of the chain. ``limits`` None: those of the
    settings."""

    collection: str
    backup: str | None = None
    first: str | None = None
    limits: Limits | None = later()


@dataclass(frozen=True, kw_only=True)
class CollectionSettings:
    """The settings of a collection, kept under the names that statements give them. ``retention``: the rules
    by which backups are kept, as they are written; None: all of them stay. ``minimum``: so many of the newest
    full backups stay with all that builds on them. ``max_chain``: the most backups that a chain may have, the
    full one included. ``compact_chain``: one that has so many is folded by itself."""

    storage: str = kept(default=CLUSTER, name=STORAGE)
    incremental: bool = kept(default=False, name=INCREMENTAL)
    omit_indexes: bool = kept(default=False, name=OMIT)
    encryption: bool = kept(default=False, name=ENCRYPTION, later=True)
    retention: str | None = kept(default=None, name=RETENTION, later=True)
    minimum: int = kept(default=1, name=MINIMUM, later=True)
    max_chain: int | None = kept(default=None, name=MAX_CHAIN, later=True)
    compact_chain: bool = kept(default=False, name=COMPACT_CHAIN, later=True)


@dataclass(frozen=True, kw_only=True)
class Collection(Record):
    """``tables`` None: every table outside ``.backups`` and ``.replaced``, as they are when one is taken.
    ``dropped``: a backup that was dropped when there was none after it, or the last one when the collection
    itself was dropped. Its name is not given out again, and no increment continues it or an earlier one.
    ``attached``: its repository belongs to another collection, of this warehouse or not, so that it can only
    be restored from here. ``leaving``: backups that were dropped, and whose manifests are still in the
    repository, oldest first. ``repository``: the id of the repository, which no other one may take the place
    of. ``key``: the fingerprint of the user's key that opened it when the last backup was sent or
    attached."""

    tables: tuple[str, ...] | None
    settings: CollectionSettings = CollectionSettings()
    dropped: str | None = later()
    attached: bool = later(False)
    leaving: tuple[str, ...] = later(())
    repository: str | None = later()
    key: str | None = later()

    def goes_on_after(self, backup: str) -> bool:
        """Return whether increments may follow a restore of its last backup: in a repository, whose chain
        outlives the tables that it was taken of. In the cluster a chain ends with its tables."""
        is_open = self.dropped is None or self.dropped < backup
        is_kept = self.settings.incremental and self.settings.storage != CLUSTER
        return is_kept and is_open and not self.attached

    @staticmethod
    def of(tables: Sequence[str] | None, settings: Iterable[tuple[str, Any]]) -> Collection:
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
        return Collection(tables=None if tables is None else tuple(tables)).with_settings(given)

    def with_settings(self, settings: Iterable[tuple[str, Any]]) -> Collection:
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

    def without_settings(self, names: Iterable[str]) -> Collection:
        changed = self.settings
        seen: set[str] = set()
        for name in names:
            check_setting(name)
            if name in seen:
                raise InvalidArgument(f"the setting {name} is named twice", "Name each setting once.")
            seen.add(name)
            if name == STORAGE:
                raise InvalidArgument(
                    "STORAGE has no default to go back to", "Set it to 'cluster', or to another place."
                )
            field, _ = _SETTINGS[name]
            changed = replace(changed, **{field: getattr(CollectionSettings(), field)})
        return replace(self, settings=changed)

    def with_table(self, path: str) -> Collection:
        names.check_place(path)
        if path in self._explicit():
            raise AlreadyExists(f"table {path} is in the collection already")
        return replace(self, tables=(*self._explicit(), path))

    def without_table(self, path: str) -> Collection:
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
    """Return the one form of a place for backups: the warehouse itself, the full path of a folder, or a URL.
    Anything else is refused: a mistyped word must not become a folder."""
    if value == CLUSTER:
        return value
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
    """Return the one form of a repository's place."""
    place = storage_of(value)
    if place == CLUSTER:
        raise InvalidArgument(
            "'cluster' is the warehouse itself, not a repository", "Name the full path of a folder, or a URL."
        )
    return place


def repository_id(name: str, value: Any) -> str:
    """Return the id of a repository, which was written for the setting ``name``."""
    text = str(value).strip().lower()
    if not re.fullmatch("[0-9a-f]{32}", text):
        raise InvalidArgument(
            f"{name} cannot be {value!r}",
            "Give the id of the repository: 32 hex digits, which DESCRIBE shows of its collection.",
        )
    return text


def boolean(name: str, value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise InvalidArgument(f"{name} must be 'true' or 'false', not {value!r}", f"Write {name} = 'true'.")
    return text == "true"


def _storage(name: str, value: Any) -> str:
    return storage_of(str(value))


def _rules(name: str, value: Any) -> str:
    return str(parse_keep(str(value)))


def _number(name: str, value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise InvalidArgument(f"{name} must be a number from 1 on, not {value!r}", f"Write {name} = 2.")
    return int(text)


_SETTINGS: Mapping[str, tuple[str, Callable[[str, Any], Any]]] = {
    STORAGE: ("storage", _storage),
    INCREMENTAL: ("incremental", boolean),
    OMIT: ("omit_indexes", boolean),
    ENCRYPTION: ("encryption", boolean),
    RETENTION: ("retention", _rules),
    MINIMUM: ("minimum", _number),
    MAX_CHAIN: ("max_chain", _number),
    COMPACT_CHAIN: ("compact_chain", boolean),
}
"""For each setting the field that has it, and what reads its value."""


def check_value(name: str, value: Any) -> None:
    """Refuse a value that a setting cannot have."""
    _SETTINGS[name][1](name, value)


def check_setting(name: str) -> None:
    if name not in _SETTINGS:
        raise InvalidArgument(
            f"a backup collection has no setting {name}",
            did_you_mean(name, _SETTINGS) or f"It has {', '.join(_SETTINGS)}.",
        )
