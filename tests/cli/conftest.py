"""Run the command line in this process: fast, and with the Spark session of the test run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.cli import main

SHOP = """
CREATE TABLE orders (id Uint64 NOT NULL, customer Utf8, total Int64, PRIMARY KEY (id),
                     INDEX by_customer GLOBAL SYNC ON (customer) COVER (total));
UPSERT INTO orders (id, customer, total) VALUES (1, 'ada', 10), (2, 'bob', 20);
CREATE BACKUP COLLECTION nightly (TABLE orders) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run command lines in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("STRANDLINE_WAREHOUSE", "STRANDLINE_CATALOG"):
        monkeypatch.delenv(name, raising=False)

    def call(*args: str) -> Ran:
        capsys.readouterr()
        code = main(args)
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return call


@pytest.fixture(scope="session")
def first_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop") / "wh"
    with strandline.connect(folder) as db:
        db.sql(SHOP)
    return folder


@pytest.fixture
def shop(run: Run, first_shop: Path) -> Iterator[Run]:
    """Run command lines in a folder with a warehouse ``wh``, which STRANDLINE_WAREHOUSE names.

    It has a table, an index and a backup collection.
    """
    shutil.copytree(first_shop, "wh")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRANDLINE_WAREHOUSE", "wh")
        yield run
