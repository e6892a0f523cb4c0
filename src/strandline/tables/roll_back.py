"""RESTORE TABLE: bring back the rows that a table had at an earlier step, as one change.

1. Find the keys that commits after the step have changed.
2. Write the rows that these keys had at the step; delete the keys that did not exist.
3. Compare the digest with the one that was recorded at the step.

The table keeps its present columns; a column that was added later becomes NULL. Indexes, streams and
increments get these changes like any other change.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.catalog import chains, tables
from strandline.errors import Corrupted, PreconditionFailed
from strandline.model import PENDING, State
from strandline.sql import statements as st
from strandline.tables.snapshot import resolve
from strandline.tables.transaction import Transaction

__all__ = ["roll_back"]


def roll_back(tx: Transaction, statement: st.RollBackTable) -> None:
    """Bring back the rows of the table as of the step or time that the statement names."""
    view = tx.writable(statement.path)
    tx.read_whole(view)  # So a concurrent commit is a conflict: its rows would be mixed with the old ones.
    _, past = resolve(tx, statement.source)
    if past.info.id != view.info.id:
        raise PreconditionFailed(
            f"{statement.path} was created after that step",
            "SHOW VERSIONS OF it lists what happened to the path.",
        )
    step, head = past.chain.step, tx.snapshot.step
    with tx.runtime.catalog.read() as conn:
        logs = chains.log_kept(conn, view.info.id, step, head)
        recorded = tables.digest_at(conn, view.info.id, step)
    changes = [*logs, *(replace(s, upto=PENDING) for s in view.chain.segments if s.upto >= PENDING)]
    if not changes:
        return
    old = State(view.info.schema, past.chain)
    rows, gone = tx.runtime.store.rows_before(old, changes)
    tx.write(view, "REPLACE", rows)
    tx.write(tx.view(statement.path), "DELETE", gone)
    if past.info.schema == view.info.schema and tx.digest(view) != recorded:
        raise Corrupted(
            f"the rows of {statement.path} at step {step} differ from those that were committed",
            "Run CHECK TABLE, and restore the table from a backup.",
        )
