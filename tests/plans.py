"""Plans and publications, asked for outside of any statement."""

from __future__ import annotations

from collections.abc import Sequence

from strandline import names
from strandline.catalog.cache import Loader, Look, SchemeCache, TablePlan, present


def planned(loader: Loader, paths: Sequence[str]) -> list[TablePlan]:
    """The tables at some paths, from one snapshot of the catalog."""
    return loader.read(lambda look: [loader.plan_table(look, names.normalize(path)) for path in paths])


def poll(cache: SchemeCache) -> None:
    """Let a cache look at the board now, and deliver what was held back."""
    with cache.catalog.read() as conn:
        cache._catch_up(Look(conn, present(conn)))
