"""Rows that are staged in files, and become a commit to a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.catalog.moment import Named
from strandline.errors import Conflict
from strandline.storage.staging import Staged, Staging
from strandline.tables.snapshot import TableView
from strandline.tables.transaction import Transaction

if TYPE_CHECKING:
    from strandline.api.database import Database


@dataclass(frozen=True)
class StagedWrite:
    """Of which table, and how its rows are staged."""

    path: str
    table_id: int
    staging: Staging

    def commit(
        self,
        db: Database,
        staged: Sequence[Staged],
        before: Callable[[Transaction, TableView], None] = lambda tx, view: None,
    ) -> int | None:
        """Write rows that are staged, in one commit, and return its step. ``before``: what the transaction
        does first. CONFLICT if the table is not the one any more that they were staged for."""
        schema = self.staging.schema

        def run(tx: Transaction) -> None:
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

        return db.transact(run, [Named(self.path, writes=True)])[0]
