"""Which files make up a table, for readers that know nothing of ours."""

from __future__ import annotations

from strandline.catalog.moment import Named
from strandline.errors import Unsupported
from strandline.runtime import Runtime
from strandline.sql.references import TableRef
from strandline.storage.recipe import Recipe
from strandline.tables.portions import keep
from strandline.tables.read import resolve
from strandline.tables.snapshot import Reader, Snapshot, repeat


def files_of(runtime: Runtime, ref: TableRef) -> Recipe:
    """Return the recipe of the table that a reference means. Its files stay for ``read_seconds``, whatever
    becomes of this process."""

    def attempt() -> Recipe:
        is_now = ref.version is None and ref.timestamp is None and ref.backup is None
        reader, view = resolve(
            Reader(runtime, Snapshot(runtime, named=[Named(ref.path)] if is_now else [])), ref
        )
        if view.increment:
            raise Unsupported(
                f"{ref.path} is an incremental backup, which holds changes and not rows",
                "Name the table by its own path, and its collection in backup.",
            )
        found = runtime.store.recipe(ref.path, view.state)
        keep(runtime, reader.snapshot.step)
        return found

    return repeat(runtime, attempt)
