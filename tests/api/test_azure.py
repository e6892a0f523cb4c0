"""A warehouse and a repository on an Azure Blob Storage server, without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.errors import Unavailable
from tests.azure import Azure
from tests.tables.examples import NoSpark, assert_sound

NO_SPARK: Any = NoSpark()
FILES: dict[str, Any] = {
    "inline_rows": 0,
    "history_seconds": 0.0,
    "grace_seconds": 0.0,
    "carry_on_seconds": 0.0,
}
ROWS = "SELECT k, v FROM t ORDER BY k"


def test_a_warehouse_is_lost_and_comes_back_from_a_repository(azure: Azure, tmp_path: Path) -> None:
    settings, repository = azure.settings(**FILES), f"az://{azure.new_container()}/vault"
    url = f"az://{azure.new_container()}/w"
    catalog = f"sqlite:///{tmp_path / 'first.sqlite'}"
    with strandline.connect(url, catalog=catalog, settings=settings, spark=NO_SPARK) as db:
        db.sql("CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))")
        db.table("t").upsert([{"k": k, "v": f"v{k % 5}"} for k in range(50)])
        db.sql(
            f"CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = '{repository}', INCREMENTAL_BACKUP_ENABLED = 'true')"
        )
        db.sql(
            "BACKUP c; DELETE FROM t WHERE k >= 10; UPSERT INTO t (k, v) VALUES (3, 'new'); BACKUP c INCREMENTAL"
        )
        assert db.verify("c") == []
        expected = db.sql(ROWS).rows()
        assert len(expected) == 10
    other, place = f"sqlite:///{tmp_path / 'second.sqlite'}", f"az://{azure.new_container()}/w"
    with strandline.connect(place, catalog=other, settings=settings, spark=NO_SPARK) as db:
        db.sql(f"ATTACH BACKUP COLLECTION c FROM '{repository}'")
        db.sql("RESTORE c")
        assert db.sql(ROWS).rows() == expected
        assert db.sql("SELECT k FROM t VIEW by_v WHERE v = 'new'").rows() == [(3,)]
        assert_sound(db, "/t")


def test_a_wrong_key_is_no_secret_and_no_traceback(azure: Azure, tmp_path: Path) -> None:
    settings = azure.settings(storage_retries=0)
    settings.storage_options["account_key"] = "d3Jvbmc="
    with pytest.raises(Unavailable) as caught:
        strandline.connect(
            f"az://{azure.new_container()}/w",
            catalog=f"sqlite:///{tmp_path / 'c.sqlite'}",
            settings=settings,
            spark=NO_SPARK,
        )
    assert "d3Jvbmc" not in f"{caught.value}{caught.value.hint}"
