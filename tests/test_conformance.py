"""The cases in conformance.yaml, on both catalogs, and once more with everything on Spark.

A case is a list of steps in an empty warehouse; what each key of a step means is said at the top of that
file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

import strandline
from strandline import Database, Settings
from strandline.errors import StrandlineError
from tests.effort import EVERY
from tests.tables.examples import NoSpark, QuickFiles, picture
from tests.world import place_catalog

CASES: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("conformance.yaml").read_text(),
    Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader),  # Each worker reads them.
)
ON_SPARK = (
    "index-key-moves-and-moves-back",
    "nested-directories",
    *(["chain-of-three-increments"] if EVERY else []),
)
"""Cases that are run a second time with every change and every query on Spark."""
WITH_SPARK = (
    "increments-are-disjoint-windows",
    "insert-and-delete-in-one-window-is-one-tombstone",
    "index-increment-has-erase-and-upsert-of-a-moved-key",
    "omit-indexes-keeps-the-index-out-of-the-data-and-in-the-schema",
    "index-key-moves-and-moves-back",
    "dropping-one-collection-leaves-the-others-alone",
    "empty-increment-completes",
    "increment-after-restore-needs-a-full",
)
"""Cases with a query that the process leaves to Spark. The others have to do without it."""
COLLECTIONS = "/.backups/collections"
NAME = re.compile(r"\$(\w+)\.(\d+)")


@dataclass
class Runner:
    """Carries out the steps of one case."""

    db: Database

    def run(self, step: dict[str, Any]) -> None:
        keys = set(step)
        if "sql" in keys:
            assert keys <= {"sql", "error", "rows"}, step
            self._sql(self._named(step["sql"]), step)
            return
        ((kind, given),) = step.items()
        check: Callable[[Any], None] = getattr(self, f"check_{kind}")
        check(given)

    def _named(self, text: str) -> str:
        """The text with the names of backups in the place of ``$c.0``, ``$c.1``, ..."""
        return NAME.sub(lambda match: self._backups(match[1])[int(match[2])], text)

    def _backups(self, collection: str) -> list[str]:
        return [e.name for e in self.db.ls(f"{COLLECTIONS}/{collection}") if e.type == "backup"]

    def _sql(self, text: str, step: dict[str, Any]) -> None:
        if "error" in step:
            before = picture(self.db)
            with pytest.raises(StrandlineError) as caught:
                self.db.sql(text)
            assert caught.value.code == step["error"], caught.value
            assert caught.value.hint
            assert picture(self.db) == before, "a refused statement leaves nothing"
            return
        result = self.db.sql(text)
        if "rows" in step:
            assert [[plain(value) for value in row] for row in result.collect()] == step["rows"], text

    def check_exists(self, path: str) -> None:
        assert self.db.describe(self._named(path))["path"] == self._named(path)

    def check_missing(self, path: str) -> None:
        with pytest.raises(StrandlineError) as caught:
            self.db.describe(self._named(path))
        assert caught.value.code == "PATH_NOT_FOUND"

    def _streams(self, path: str) -> list[str]:
        return [e.name for e in self.db.ls(path) if e.type == "stream"]

    def check_streams(self, numbers: dict[str, int]) -> None:
        assert {path: len(self._streams(path)) for path in numbers} == numbers

    def check_same_streams(self, paths: list[str]) -> None:
        found = [self._streams(path) for path in paths]
        assert len(found[0]) == 1
        assert all(streams == found[0] for streams in found), found

    def check_versions_agree(self, table: str) -> None:
        for index in self.db.describe(table)["indexes"]:
            path = f"{table}/{index['name']}"
            assert (
                index["version"]
                == self.db.describe(path)["version"]
                == self.db.describe(f"{path}/indexImplTable")["version"]
            ), path


def plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else value


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., Database]]:
    opened: list[Database] = []

    def make(**options: Any) -> Database:
        folder = tmp_path / "warehouse"
        if options.get("catalog") is None:
            place_catalog(folder / "catalog.sqlite")
        opened.append(strandline.connect(folder, files=QuickFiles(folder), **options))
        return opened[-1]

    yield make
    for db in opened:
        db.close()


def test_every_case_has_its_own_name() -> None:
    assert len({case["id"] for case in CASES}) == len(CASES) > 25
    assert {*ON_SPARK, *WITH_SPARK} <= {case["id"] for case in CASES}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case["id"], marks=[pytest.mark.spark] if case["id"] in WITH_SPARK else [])
        for case in CASES
    ],
)
def test_case(
    case: dict[str, Any],
    connect: Callable[..., Database],
    catalog_url: str | None,
    request: pytest.FixtureRequest,
) -> None:
    spark = request.getfixturevalue("spark") if case["id"] in WITH_SPARK else NoSpark()
    runner = Runner(connect(catalog=catalog_url, spark=spark))
    for step in case["steps"]:
        runner.run(step)


@pytest.mark.parametrize("case", [c for c in CASES if c["id"] in ON_SPARK], ids=lambda case: case["id"])
def test_case_on_spark(case: dict[str, Any], connect: Callable[..., Database], spark: Any) -> None:
    runner = Runner(connect(spark=spark, settings=Settings(bulk_rows=0, scan_rows=0)))
    for step in case["steps"]:
        runner.run(step)
