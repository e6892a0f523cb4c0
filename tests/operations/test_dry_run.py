"""A dry run shows what an operation would do, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Connection

from strandline.catalog import paths
from strandline.errors import PathNotFound
from strandline.operations.dry_run import rehearse
from strandline.operations.kind import Plan
from strandline.operations.streams import CreateStream
from tests.catalogs import create, dump, open_catalog
from tests.engines import stream_on


def test_a_plan_is_looked_at_and_undone(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    create(catalog, "/orders", ())
    with catalog.read() as conn:
        before = dump(conn)

    def look(conn: Connection, plan: Plan) -> tuple[int, str]:
        return len(plan.parts), paths.require(conn, "/orders").state

    assert rehearse(catalog, CreateStream(), stream_on("/orders"), look) == (1, "altering")
    with pytest.raises(PathNotFound):
        rehearse(catalog, CreateStream(), stream_on("/nowhere"), look)
    with catalog.read() as conn:
        assert dump(conn) == before
    catalog.close()
