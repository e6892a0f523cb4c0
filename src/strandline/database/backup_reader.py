"""Reading tables as a backup holds them, without restoring anything: the slices of its chain, one after the other."""

from __future__ import annotations

from sqlalchemy import Connection

from strandline.backup.records import BackupRecord, SliceRecord, slices_of
from strandline.catalog import chains
from strandline.catalog.tables import IndexRef, TableInfo
from strandline.database.snapshot import Reader, Snapshot, TableView
from strandline.errors import PathNotFound, PreconditionFailed
from strandline.model import Chain, Segment, TableSchema
from strandline.names import did_you_mean
from strandline.operations.context import Context
from strandline.operations.restore_plan import RestoreRequest, plan_restore


class BackupReader(Reader):
    """Tables as they were when a backup was taken (the collection's last one by default)."""

    def __init__(self, context: Context, collection: str, backup: str | None) -> None:
        super().__init__(context, Snapshot(context, None, context.settings.read_seconds))
        with context.catalog.read() as conn:
            self._chain = plan_restore(conn, RestoreRequest(collection, at=backup)).chain

    def view(self, path: str) -> TableView:
        backup = self._chain[-1]
        record = backup.tables.get(path)
        if record is None:
            hint = did_you_mean(path, backup.tables) or f"It holds {', '.join(sorted(backup.tables))}."
            raise PathNotFound(f"{path} is not in the backup {backup.name}", hint)
        refs = tuple(IndexRef(i.definition, 0, 0, i.version, i.slice is None) for i in record.indexes)
        return self._view(path, path, None, record.schema, record.slice, refs)

    def index(self, table: TableView, ref: IndexRef) -> TableView:
        name = ref.definition.name
        record = self._chain[-1].tables[table.info.path].index(name)
        if record is None or record.slice is None:
            raise PreconditionFailed(
                f"the backup {self._chain[-1].name} has no data of the index {name!r}", "Read without VIEW, or restore the table."
            )
        impl = ref.definition.impl_schema(table.info.schema)
        return self._view(f"{table.info.path}/{name}", table.info.path, name, impl, record.slice, ())

    def _view(
        self, shown: str, path: str, index: str | None, table: TableSchema, slice_: SliceRecord, refs: tuple[IndexRef, ...]
    ) -> TableView:
        found = slices_of(self._chain, path, index)
        with self.context.catalog.read() as conn:
            segments = [s for place, part in found for s in _segments(conn, self._chain[place], part)]
        info = TableInfo(0, shown, slice_.version, "ready", None, self._chain[-1].step, table, refs)
        return TableView(info, Chain(tuple(segments), self._chain[-1].step))


def _segments(conn: Connection, backup: BackupRecord, slice_: SliceRecord) -> tuple[Segment, ...]:
    return chains.load(conn, slice_.target_id or 0, backup.step).segments
