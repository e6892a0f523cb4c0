"""The manifest of a backup in a repository: its record, and the objects that hold its rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from strandline.backups.collection import CollectionSettings
from strandline.backups.record import BACKUP_NAME, BackupHead, BackupRecord, SliceRecord, TableRecord
from strandline.errors import Internal
from strandline.model import Key, Role, Segment, decode_key, encode_key
from strandline.records import Record, stored_as
from strandline.storage.file_router import absolute
from strandline.storage.object_names import ObjectName

MANIFESTS = "backups"
_FORM = rf"{MANIFESTS}/({BACKUP_NAME})(\.full|\.after-([0-9]{{1,19}}))?\.json"
_FILE = re.compile(_FORM, re.ASCII)
_PART = re.compile(rf"{_FORM}\.[0-9a-f]{{32}}", re.ASCII)


def file_of(backup: BackupHead) -> str:
    """Return the manifest file that describes a backup in its present form."""
    form = ".full" if backup.synthetic else f".after-{backup.after_step}" if backup.merged else ""
    return f"{MANIFESTS}/{backup.name}{form}.json"


def backup_of(file: str) -> str | None:
    """Return the name of the backup that a manifest file describes. None: it is not a manifest file."""
    found = _FILE.fullmatch(file)
    return None if found is None else found[1]


def is_part(file: str) -> bool:
    """Return True if a file is a temporary file of a manifest, left by a crashed writer."""
    return _PART.fullmatch(file) is not None


def after_in(file: str) -> float:
    """Return the step after which a backup begins, from the name of its manifest.

    -1: the backup was compacted and needs no other backup. Infinity: the manifest was written when the backup
    was taken, and its name has no step. If a backup has several manifests, the one with the smallest value is
    in effect.
    """
    found = _FILE.fullmatch(file)
    if found is None or found[2] is None:
        return inf
    return -1 if found[3] is None else int(found[3])


def _write_key(key: Key | None) -> Any:
    return None if key is None else encode_key(key)


def _read_key(body: Any) -> Key | None:
    return None if body is None else decode_key(body)


@dataclass(frozen=True, kw_only=True)
class ObjectRecord:
    """A segment that is stored as an object of the repository. The fields are those of a segment."""

    object: ObjectName
    bytes: int
    checksum: str
    rows: int
    role: Role
    fresh: bool
    stepped: bool
    after: int
    upto: int
    min_key: Key | None = stored_as(write=_write_key, read=_read_key)
    max_key: Key | None = stored_as(write=_write_key, read=_read_key)

    @staticmethod
    def of(segment: Segment) -> ObjectRecord:
        if segment.file is None:
            raise Internal("an inline segment was taken for an object")
        return ObjectRecord(
            object=ObjectName(segment.file),
            bytes=segment.bytes,
            checksum=segment.checksum,
            rows=segment.rows,
            role=segment.role,
            fresh=segment.fresh,
            stepped=segment.stepped,
            after=segment.after,
            upto=segment.upto,
            min_key=segment.min_key,
            max_key=segment.max_key,
        )

    def segment(self, root: str, use: str) -> Segment:
        """Return the object as a segment of the catalog.

        Args:
            use: Suffix that makes the file name unique in the catalog.
        """
        return Segment(
            id=0,
            role=self.role,
            fresh=self.fresh,
            stepped=self.stepped,
            after=self.after,
            upto=self.upto,
            rows=self.rows,
            bytes=self.bytes,
            file=absolute(root, self.object, use),
            checksum=self.checksum,
            min_key=self.min_key,
            max_key=self.max_key,
        )


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The objects that a backup itself holds of one table and its indexes.

    Attributes:
        table: Objects of the table, oldest first.
        indexes: Objects of each index, oldest first, by index name.
    """

    table: tuple[ObjectRecord, ...]
    indexes: Mapping[str, tuple[ObjectRecord, ...]] = field(default_factory=dict)

    @staticmethod
    def of(table: TableRecord, made: Mapping[int, tuple[ObjectRecord, ...]]) -> Contents:
        """Select the objects of a table and its indexes.

        Args:
            made: Objects of a backup, by the id of the path that holds them.
        """

        def objects_of(slice_: SliceRecord) -> tuple[ObjectRecord, ...]:
            return made.get(slice_.target_id, ())

        return Contents(
            table=objects_of(table.slice),
            indexes={i.definition.name: objects_of(i.slice) for i in table.indexes if i.slice is not None},
        )


@dataclass(frozen=True, kw_only=True)
class Manifest(Record):
    """A backup in a repository.

    Attributes:
        repository: Id of the repository.
        engine: Version of Strandline that wrote the manifest.
        warehouse: Id of the warehouse that wrote the manifest.
        collection: Name of the collection when the manifest was written.
        tables: Tables of the collection at that time. None: all tables.
        settings: Settings of the collection at that time.
        contents: Objects of each table, by table path.
    """

    repository: str
    engine: str
    warehouse: str
    collection: str
    tables: tuple[str, ...] | None
    settings: CollectionSettings
    backup: BackupRecord
    contents: Mapping[str, Contents]

    def slices(self) -> list[tuple[SliceRecord, tuple[ObjectRecord, ...]]]:
        """Return each slice that has data, with its objects."""
        found: list[tuple[SliceRecord, tuple[ObjectRecord, ...]]] = []
        for path, table in self.backup.tables.items():
            contents = self.contents[path]
            found.append((table.slice, contents.table))
            for index in table.indexes:
                if index.slice is not None:
                    found.append((index.slice, contents.indexes[index.definition.name]))
        return found

    def objects(self) -> dict[str, ObjectRecord]:
        """Return the objects that the backup itself holds, by name."""
        return {o.object: o for _, objects in self.slices() for o in objects}
