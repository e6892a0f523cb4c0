"""List the files of a table, for readers without Strandline."""

from __future__ import annotations

from strandline.runtime import Runtime
from strandline.sql.references import TableRef
from strandline.storage.file_plan import FilePlan
from strandline.tables.attempts import StatementAttempts
from strandline.tables.partitions import hold_rows, keep


def files_of(runtime: Runtime, ref: TableRef) -> FilePlan:
    """Return the files of the table that ``ref`` names, and how to merge them.

    The files are kept for ``read_seconds``, even if this process ends.
    """

    def attempt() -> FilePlan:
        reader, view = hold_rows(runtime, ref)
        found = runtime.store.file_plan(ref.path, view.state)
        keep(runtime, reader.snapshot.step)
        return found

    return StatementAttempts(runtime).repeat(attempt)
