"""A writer crashes at every write boundary, on one warehouse: each commit is complete or absent."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from tests.catalogs import Death
from tests.crash.mortal import NOW, Fate, bury, connect
from tests.crash.scenarios import HERE, LARGE_ON_SPARK, ON_SPARK, Model, Scenario, create, state, verify
from tests.effort import EVERY, on_catalogs
from tests.s3 import S3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def die_everywhere(
    folder: Path | str, url: str | None, scenario: Scenario, spark: Any = None, stride: int = 1
) -> list[str]:
    """Crash at every ``stride``-th boundary; return the boundaries of the last run, which survived."""
    create(folder, url)
    for i in itertools.count(1):
        with strandline.connect(folder, catalog=url, settings=NOW) as living:
            scenario.prepare(living, i)
            before = state(living)
        after = scenario.after(before, i)
        fate = Fate(1 + (i - 1) * stride)
        mortal = connect(folder, url, fate, scenario.settings, spark)
        try:
            scenario.act(mortal, i)
            mortal.close()
        except Death:
            bury(mortal, folder, url)
        try:
            _look(folder, url, scenario, i, before if fate.dead else after, after, spark)
        except BaseException as error:
            raise AssertionError(f"after death at {fate.place}") from error
        if not fate.dead:
            return fate.trail
    raise AssertionError


def _look(
    folder: Path | str, url: str | None, scenario: Scenario, i: int, before: Model, after: Model, spark: Any
) -> None:
    with strandline.connect(folder, catalog=url, settings=NOW) as db:
        found = verify(db, before, after)
        if (found == before != after or scenario.again(db)) and (spark is None or i % 4 == 1):
            # Another process can repeat what was interrupted, with the usual result.
            with strandline.connect(folder, catalog=url, settings=scenario.settings, spark=spark) as other:
                scenario.act(other, i)
            assert state(db) == after
            assert db.check("/t").problems == db.check("/u").problems == []
        if i % 5 == 0:
            db.compact("/t")  # Otherwise later rounds have ever more to read.
            db.compact("/u")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "catalog_url"),
    on_catalogs({s.name: s for s in HERE}, ["inline commit", "commit to files", "description"]),
    indirect=["catalog_url"],
)
def test_death_at_every_boundary(scenario: Scenario, tmp_path: Path, catalog_url: str | None) -> None:
    """At a sample of them."""
    stride = 1 if EVERY else 17 if catalog_url is None else 29
    trail = die_everywhere(tmp_path / "warehouse", catalog_url, scenario, stride=stride)
    assert "before the catalog commits" in trail


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario",
    [s for s in HERE if EVERY or s.name not in ("inline commit", "description", "maintenance")],
    ids=lambda s: s.name,
)
def test_death_at_every_boundary_beside_a_bucket(
    scenario: Scenario, tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample: only scenarios of files, and parts of maintenance; all of them in the exhaustive run."""
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    where, url = f"s3://{s3.new_bucket()}/w", f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    trail = die_everywhere(where, url, scenario, stride=1 if EVERY else 29)
    assert "before the catalog commits" in trail
    assert scenario.name != "commit to files" or "put" in trail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "catalog_url"),
    on_catalogs({s.name: s for s in ON_SPARK}, [ON_SPARK[-1].name]),
    indirect=["catalog_url"],
)
def test_death_at_boundaries_on_spark(
    scenario: Scenario, tmp_path: Path, catalog_url: str | None, spark: SparkSession
) -> None:
    """At a sample of them: boundaries do not depend on which engine wrote the rows."""
    stride = 1 if EVERY else 37
    trail = die_everywhere(tmp_path / "warehouse", catalog_url, scenario, spark, stride)
    assert "before the catalog commits" in trail


@pytest.mark.slow
@pytest.mark.skipif(not EVERY, reason="takes many minutes; make exhaustive runs it")
@pytest.mark.parametrize("scenario", LARGE_ON_SPARK, ids=lambda s: s.name)
def test_death_at_every_boundary_of_many_jobs_on_spark(
    scenario: Scenario, tmp_path: Path, spark: SparkSession
) -> None:
    assert "sync" in die_everywhere(tmp_path / "warehouse", None, scenario, spark)
