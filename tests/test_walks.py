"""The modules that a statement passes are those that the page about the architecture lists."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import strandline
from strandline import Settings
from tests.walks import CALLED_BACK, PAGE, WALKS, Walk, on_the_page, open_connections, recorded, walks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

once = pytest.mark.xdist_group("walks")
"""Of the tests for which walks are recorded: by one worker for all."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Walk]:
    return walks(tmp_path_factory.mktemp("walks") / "w")


@once
@pytest.mark.parametrize("title", WALKS)
def test_the_page_lists_what_a_statement_passes(found: dict[str, Walk], title: str) -> None:
    assert found[title].stations == on_the_page(title)


@once
def test_the_page_says_how_many_there_are(found: dict[str, Walk]) -> None:
    upsert, increment = found["A small UPSERT"], found["BACKUP INCREMENTAL"]
    said = (
        f"A small UPSERT passes {len(upsert.stations)} of them ({len(upsert.modules)} with those left out), "
        f"an incremental backup {len(increment.stations)} ({len(increment.modules)})."
    )
    assert said in PAGE.read_text(), (upsert.modules, increment.modules)


@once
@pytest.mark.parametrize(("title", "most"), [("A small UPSERT", 22), ("BACKUP INCREMENTAL", 28)])
def test_the_most_walked_ways_stay_short(found: dict[str, Walk], title: str, most: int) -> None:
    assert len(found[title].stations) <= most


@once
@pytest.mark.parametrize("title", WALKS)
def test_no_module_is_entered_from_below_but_for_what_was_handed_down(
    found: dict[str, Walk], title: str
) -> None:
    assert _not_handed_down(found[title]) == []


def test_the_page_lists_what_a_bulk_load_passes(tmp_path: Path, spark: SparkSession) -> None:
    create = "CREATE TABLE {} (k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL ON (v))"
    rows = spark.range(1000).selectExpr("id AS k", "concat('v', id % 7) AS v", "id AS n")
    with strandline.connect(tmp_path / "w", spark=spark, settings=Settings(bulk_rows=10)) as db:
        for name in ("before", "t"):
            db.sql(create.format(name))
        db.table("before").upsert(rows)
        open_connections(db)
        with recorded() as walk:
            db.table("t").upsert(rows)
    assert set(walk.stations) == set(on_the_page("A bulk load"))
    assert _not_handed_down(walk) == []


def _not_handed_down(walk: Walk) -> list[tuple[str, str]]:
    return [(by, to) for by, to in walk.upwards if (by, to.partition("/")[0]) not in CALLED_BACK]


def test_a_module_that_is_passed_is_noticed(tmp_path: Path) -> None:
    with strandline.connect(tmp_path / "w") as db, recorded() as walk:
        db.ls()
    assert walk.modules[0] == "api/database"
    assert "catalog/paths" in walk.stations
