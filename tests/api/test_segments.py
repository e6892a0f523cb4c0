"""``db.table(t).segments()``: the chain of a table's present state."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.errors import PathNotFound
from tests.backups.reading import open_at


def test_segments_are_those_of_the_present_state(tmp_path: Path) -> None:
    with open_at(tmp_path / "w", settings={"inline_rows": 5}) as db:
        db.sql("CREATE TABLE t (k Int64 NOT NULL, PRIMARY KEY (k))")
        table = db.table("/t")
        assert table.segments() == []
        table.upsert([{"k": i} for i in range(10)])
        table.upsert([{"k": 1}])
        large, small = table.segments()
        assert (large.role, large.place, large.rows) == ("log", "warehouse", 10)
        assert (small.role, small.place, small.rows) == ("log", "catalog", 1)
        assert large.upto == small.after or large.upto < small.upto == db.step
        db.compact("/t")
        (base,) = table.segments()
        assert (base.role, base.place, base.rows) == ("base", "warehouse", 10)
        assert base.bytes == db.describe("/t")["bytes"]
        with pytest.raises(PathNotFound):
            db.table("/u").segments()
