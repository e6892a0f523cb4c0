"""Commit rows that were staged in files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.catalog.definitions import TableDefinition
from strandline.catalog.snapshots import Named
from strandline.errors import Conflict
from strandline.storage.staged_files import Staged, Staging
from strandline.tables.snapshot import TableView
from strandline.tables.transaction import Transaction

if TYPE_CHECKING:
    from strandline.api.database import Database


@dataclass(frozen=True)
class StagedWrite:
    """A table, and the staging of its new rows.

    Attributes:
        new: The definition of the table if the commit creates it. None: the table exists.
    """

    path: str
    table_id: int
    staging: Staging
    new: TableDefinition | None = None

    def commit(
        self,
        db: Database,
        staged: Sequence[Staged],
        before: Callable[[Transaction, TableView], None] = lambda tx, view: None,
    ) -> int | None:
        """Write staged rows in one commit; return its step.

        Raises CONFLICT if the table was replaced or altered after the rows were staged.

        Args:
            db: the warehouse.
            staged: the staged rows.
            before: called in the transaction before the rows are written to an existing table.
        """
        schema = self.staging.schema

        def run(tx: Transaction) -> None:
            if self.new is not None:
                tx.write_staged(tx.create(self.new), self.staging.mode, schema, staged)
                return
            view = tx.writable(self.path)
            now = {column.name: column for column in view.info.schema.columns}
            is_same = all(now.get(column.name) == column for column in schema.columns)
            if view.info.id != self.table_id or not is_same:
                raise Conflict(
                    f"{self.path} was changed while rows were written for it; nothing was committed",
                    "Repeat the write.",
                )
            before(tx, view)
            tx.write_staged(view, self.staging.mode, schema, staged)

        return db._transactions.change(run, [] if self.new else [Named(self.path, writes=True)])[0]
