"""The cases of conformance.yaml: on both catalogs, and once more with everything on Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import strandline
from strandline.errors import PathNotFound, StrandlineError
from strandline.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline import Database

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "conformance.yaml").read_text())
ON_SPARK = ("index-increment-has-erase-and-upsert-of-a-moved-key", "view-joins-back-for-uncovered-columns", "column-added-inside-the-chain")


class Runner:
    """Takes the steps of one case."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def take(self, step: dict[str, Any]) -> None:
        (kind,) = [k for k in step if k not in ("error", "rows")]
        getattr(self, f"_{kind}")(step[kind], step)

    def _sql(self, text: str, step: dict[str, Any]) -> None:
        text = self._named(text)
        if "error" in step:
            before = self._everything()
            with pytest.raises(StrandlineError) as refused:
                self._db.sql(text)
            assert refused.value.code == step["error"], f"{text}: {refused.value}"
            assert refused.value.hint
            assert self._everything() == before, f"{text} was refused and left something behind"
            return
        result = self._db.sql(text)
        if "rows" in step:
            assert [list(row) for row in result.collect()] == step["rows"], text

    def _exists(self, path: str, _: dict[str, Any]) -> None:
        assert self._db.describe(self._named(path))["path"] == self._named(path)

    def _missing(self, path: str, _: dict[str, Any]) -> None:
        with pytest.raises(PathNotFound):
            self._db.describe(self._named(path))

    def _streams(self, expected: dict[str, int], _: dict[str, Any]) -> None:
        assert {path: len(self._streams_below(path)) for path in expected} == expected

    def _same_streams(self, paths: list[str], _: dict[str, Any]) -> None:
        found = [self._streams_below(path) for path in paths]
        assert len(found[0]) == 1
        assert all(names == found[0] for names in found)

    def _versions_agree(self, table: str, _: dict[str, Any]) -> None:
        listed = self._db.describe(table)["indexes"]
        assert listed
        for index in listed:
            path = f"{table}/{index['name']}"
            assert index["version"] == self._db.describe(path)["version"] == self._db.describe(f"{path}/indexImplTable")["version"]

    def _streams_below(self, path: str) -> list[str]:
        return [entry.name for entry in self._db.ls(path) if entry.type == "stream"]

    def _named(self, text: str) -> str:
        def name(found: re.Match[str]) -> str:
            backups = [entry.name for entry in self._db.ls(f"/.backups/collections/{found[1]}") if entry.type == "backup"]
            return backups[int(found[2])]

        return re.sub(r"\$(\w+)\.(\d+)", name, text)

    def _everything(self) -> dict[str, Any]:
        """All that can be described, except for operations: a refused one leaves nothing here."""
        found: dict[str, Any] = {"operations": len(self._db.operations())}

        def walk(path: str) -> None:
            found[path] = self._db.describe(path)
            for entry in self._db.ls(path):
                walk(entry.path)

        walk("/")
        return found


@pytest.fixture
def db(tmp_path: Path, catalog_url: str | None) -> Iterator[Database]:
    with strandline.connect(tmp_path / "warehouse", catalog=catalog_url) as opened:
        yield opened


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_conformance(db: Database, case: dict[str, Any], spark: SparkSession) -> None:
    # Queries of incremental backups run on Spark: the shared session serves them.
    runner = Runner(db)
    for step in case["steps"]:
        runner.take(step)


@pytest.mark.parametrize("case", [c for c in CASES if c["id"] in ON_SPARK], ids=ON_SPARK)
def test_conformance_with_everything_on_spark(tmp_path: Path, case: dict[str, Any], spark: SparkSession) -> None:
    with strandline.connect(tmp_path / "warehouse", spark=spark, settings=Settings(bulk_rows=0, scan_rows=0)) as db:
        runner = Runner(db)
        for step in case["steps"]:
            runner.take(step)
