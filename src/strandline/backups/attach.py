"""Attaching a repository: the backups in it become those of a collection here, without the catalog they were
taken with.

The paths of a backup are made as a backup itself makes them, and hold the repository's objects. Steps are
those of the warehouse that took the backups, so the clock of this one goes on after the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from strandline import names
from strandline.backups.collection import Collection
from strandline.backups.lifecycle import check_one_writer, writer_of
from strandline.backups.manifest import Manifest, ObjectRecord
from strandline.backups.record import (
    META,
    BackupRecord,
    IndexRecord,
    SliceRecord,
    TableRecord,
    collection_path,
)
from strandline.backups.repository import Repository
from strandline.backups.send import place_objects
from strandline.catalog import many, paths, tables, warehouse
from strandline.catalog.many import NewPath
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.tables import IndexRef, TableBody
from strandline.catalog.writer import Writer
from strandline.errors import AlreadyExists, Corrupted, PreconditionFailed, StrandlineError
from strandline.model import Digest
from strandline.runtime import Runtime


@dataclass(frozen=True)
class Found:
    """A backup of a repository; ``problem``: why it cannot be used."""

    name: str
    manifest: Manifest | None
    problem: str | None = None


def name_in(runtime: Runtime, root: str) -> str:
    """Return the name that the collection of a repository has, as its last readable backup says."""
    repository = Repository(runtime.files.at(root), root)
    repository.marker  # noqa: B018  (what is no repository is refused before anything else)
    found = Found("", None)
    for backup in reversed(repository.backups()):
        found = _read(repository, backup)
        if found.manifest is not None:
            return found.manifest.collection
    raise _nothing_in(root, found.problem)


def attach(runtime: Runtime, name: str, root: str, *, take_over: bool) -> tuple[int, list[Found]]:
    """Make the collection ``name`` of the repository at ``root``, and return the step at which it is there
    and what was found. A manifest that cannot be read costs that backup, not the others. ``take_over``: from
    now on this warehouse adds to the repository."""
    names.check_name(name)
    names.check_not_reserved(name, "collection")
    repository = Repository(runtime.files.at(root), root)
    is_encrypted = repository.marker.encrypted  # What is no repository is refused before anything else.
    path = collection_path(name)
    with runtime.catalog.read() as conn:
        here = warehouse.require(conn).id
        _check_free(conn, path)
    listed = set(repository.manifests())
    found, usable = _all(repository)
    owner = repository.owner()
    if take_over:
        repository.own(here, runtime.clock.now(), take_over=True)
        if set(repository.manifests()) != listed:
            # The one that had it was at work up to now.
            found, usable = _all(repository)
    foreign = owner is not None and owner.warehouse != here
    with runtime.catalog.write() as tx:
        parent = many.make_parent(tx, path)
        attached = not take_over and (foreign or writer_of(tx.conn, name, root) is not None)
        tx.skip_to(max(manifest.backup.step for manifest in usable))
        last = usable[-1]
        settings = replace(last.settings, storage=root, encryption=is_encrypted)
        collection = Collection(tables=last.tables, settings=settings, attached=attached)
        check_one_writer(tx.conn, name, collection)
        row = many.add_one(tx, NewPath(parent, name, "backup_collection", collection))
        tables.publish(tx, [row.id])
        for manifest in usable:
            _Attached(tx, row, manifest, root).make()
        return tx.step, found


def _check_free(conn: Connection, path: str) -> None:
    if paths.find(conn, path) is not None:
        raise AlreadyExists(
            f"there is a backup collection {path.rpartition('/')[2]!r} already",
            "Choose another name, or drop it first.",
        )


def _all(repository: Repository) -> tuple[list[Found], list[Manifest]]:
    """Return all backups of a repository, and the manifests of those that can be used: at least one."""
    found = [_read(repository, backup) for backup in repository.backups()]
    usable = [each.manifest for each in found if each.manifest is not None]
    if not usable:
        raise _nothing_in(repository.root, found[-1].problem if found else None)
    return found, usable


def _nothing_in(root: str, problem: str | None) -> PreconditionFailed:
    return PreconditionFailed(
        f"the repository {root} has no backup that can be read", problem or "Check the folder or the URL."
    )


def _read(repository: Repository, backup: str) -> Found:
    try:
        return Found(backup, repository.manifest(backup))
    except Corrupted as error:
        return Found(backup, None, error.message)
    except StrandlineError as error:
        # A later version wrote it, or its warehouse has dropped it since it was listed.
        if error.code not in ("PRECONDITION_FAILED", "PATH_NOT_FOUND"):
            raise
        return Found(backup, None, error.message)


class _Attached:
    """Makes the paths of one backup, and lets them hold its objects."""

    def __init__(self, tx: Writer, collection: Path, manifest: Manifest, root: str) -> None:
        self._tx = tx
        self._collection = collection
        self._manifest = manifest
        self._root = root
        self._made: list[Path] = []
        self._objects: dict[int, tuple[ObjectRecord, ...]] = {}
        self._digests: dict[int, Digest] = {}

    def make(self) -> None:
        record = self._manifest.backup
        backup = self._add([NewPath(self._collection, record.name, "backup", record)])[0]
        # What became a full backup has the paths of the increment that it was.
        is_full = record.kind == "full" and not record.synthetic
        placed = self._full(backup, record) if is_full else self._incremental(backup, record)
        held = replace(record, tables=placed, stored=self._root)
        paths.set_body(self._tx, backup.id, held)
        tables.add_states(self._tx, self._digests, record.step)
        place_objects(self._tx, held, self._objects, self._root)
        tables.publish(self._tx, [path.id for path in self._made])

    def _add(self, new: Sequence[NewPath]) -> list[Path]:
        made = many.add(self._tx, new, step=self._manifest.backup.step)
        self._made += made
        return made

    def _full(self, backup: Path, record: BackupRecord) -> dict[str, TableRecord]:
        """Return tables with their indexes below them, as a copy makes them."""
        listed = list(record.tables.items())
        rows = self._tables(
            [f"{backup.path}{path}" for path, _ in listed], [TableBody(schema=t.schema) for _, t in listed]
        )
        placed, bodies = {}, {}
        for (path, table), row in zip(listed, rows, strict=True):
            contents = self._manifest.contents[path]
            refs, indexes = [], []
            for index in table.indexes:
                definition = index.definition
                above = self._add([NewPath(row, definition.name, "index", definition)])[0]
                body = TableBody(schema=definition.impl_schema(table.schema))
                impl = self._add([NewPath(above, IMPL_TABLE, "table", body)])[0]
                omitted = index.slice is None
                refs.append(
                    IndexRef.of(definition, index_id=above.id, impl_id=impl.id, version=1, omitted=omitted)
                )
                indexes.append(self._index(index, impl, contents.indexes.get(definition.name, ())))
            bodies[row.id] = TableBody(schema=table.schema, indexes=tuple(refs))
            slice_ = self._slice(table.slice, row, contents.table)
            placed[path] = replace(table, slice=slice_, indexes=tuple(indexes))
        many.set_bodies(self._tx, bodies)
        return placed

    def _incremental(self, backup: Path, record: BackupRecord) -> dict[str, TableRecord]:
        """Return slices of tables, and those of indexes in a place of their own, as an increment makes
        them."""
        wanted: list[tuple[str, str | None, TableBody]] = []
        increment = record.kind == "incremental"
        for path, table in record.tables.items():
            wanted.append((path, None, TableBody(schema=table.schema, increment=increment)))
            for index in table.indexes:
                if index.slice is not None:
                    schema = index.definition.impl_schema(table.schema)
                    wanted.append(
                        (path, index.definition.name, TableBody(schema=schema, increment=increment))
                    )
        places = [
            f"{backup.path}{path}" if index is None else f"{backup.path}/{META}/indexes{path}/{index}"
            for path, index, _ in wanted
        ]
        rows = self._tables(places, [body for _, _, body in wanted])
        made = {(path, index): row for (path, index, _), row in zip(wanted, rows, strict=True)}
        placed = {}
        for path, table in record.tables.items():
            contents = self._manifest.contents[path]
            placed[path] = replace(
                table,
                slice=self._slice(table.slice, made[path, None], contents.table),
                indexes=tuple(
                    i
                    if i.slice is None
                    else self._index(
                        i, made[path, i.definition.name], contents.indexes.get(i.definition.name, ())
                    )
                    for i in table.indexes
                ),
            )
        return placed

    def _tables(self, places: Sequence[str], bodies: Sequence[TableBody]) -> list[Path]:
        parents, directories = many.make_parents(self._tx, places, self._manifest.backup.step)
        tables.publish(self._tx, directories)
        return self._add(
            [
                NewPath(parents[place], place.rsplit("/", 1)[1], "table", body)
                for place, body in zip(places, bodies, strict=True)
            ]
        )

    def _index(self, index: IndexRecord, row: Path, objects: tuple[ObjectRecord, ...]) -> IndexRecord:
        if index.slice is None:
            self._digests[row.id] = Digest()
            return index
        return replace(index, slice=self._slice(index.slice, row, objects))

    def _slice(self, slice_: SliceRecord, row: Path, objects: tuple[ObjectRecord, ...]) -> SliceRecord:
        self._objects[row.id] = objects
        is_full = self._manifest.backup.kind == "full"
        self._digests[row.id] = slice_.after if is_full else Digest(slice_.rows, slice_.after.value)
        return replace(slice_, target_id=row.id)
