"""Which files make up a table, for readers that know nothing of ours."""

from __future__ import annotations

from strandline.runtime import Runtime
from strandline.sql.references import TableRef
from strandline.storage.recipe import Recipe
from strandline.tables.portions import held_rows, keep
from strandline.tables.snapshot import repeat


def files_of(runtime: Runtime, ref: TableRef) -> Recipe:
    """Return the recipe of the table that a reference means. Its files stay for ``read_seconds``, whatever
    becomes of this process."""

    def attempt() -> Recipe:
        reader, view = held_rows(runtime, ref)
        found = runtime.store.recipe(ref.path, view.state)
        keep(runtime, reader.snapshot.step)
        return found

    return repeat(runtime, attempt)
