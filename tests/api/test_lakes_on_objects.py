"""Export and load of Delta and Iceberg tables on an object store, with the credentials of warehouses."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from strandline import Database
from strandline.api.load import NewTable, load
from strandline.errors import AlreadyExists, InvalidArgument, Unavailable, Unsupported
from strandline.storage.external import External
from tests.backups.reading import open_at
from tests.s3 import S3

TABLE = "CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'one'), (2, NULL)"
Kind = Literal["delta", "iceberg"]
KINDS: tuple[Kind, ...] = ("delta", "iceberg")


def loaded(db: Database, into: str, url: str, kind: Kind | None = None) -> int | None:
    source = External(places=(url,), kind=kind, settings=db._runtime.settings)
    return load(db, into, source, wanted=NewTable(key=["k"])).read


@pytest.mark.parametrize("by", ["settings", "environment"])
def test_lakes_are_exported_and_loaded(
    s3: S3, tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    bucket = s3.new_bucket()
    for name, value in s3.variables.items() if by == "environment" else ():
        monkeypatch.setenv(name, value)
    with open_at(tmp_path, settings={} if by == "environment" else {"storage_options": s3.options}) as db:
        db.sql(TABLE)
        for kind in KINDS:
            url = f"s3://{bucket}/{kind}"
            db.sql(f"EXPORT t TO '{url}' WITH (FORMAT = '{kind}')")
            with pytest.raises(AlreadyExists):
                db.sql(f"EXPORT t TO '{url}' WITH (FORMAT = '{kind}')")
            assert loaded(db, kind, url) == 2
            assert db.describe(kind)["digest"] == db.describe("t")["digest"]
            with pytest.raises(InvalidArgument, match=f"{url}/x has no (log|metadata) of a"):
                loaded(db, "u", f"{url}/x", kind)
            with pytest.raises(Unavailable, match=f"there is no bucket {bucket}-lost"):
                loaded(db, "u", f"s3://{bucket}-lost/x", kind)


def test_iceberg_is_refused_where_its_client_would_need_more(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    with open_at(tmp_path) as db:
        for url in ("gs://bucket/x", "az://bucket/x/metadata/1.metadata.json"):
            with pytest.raises(Unsupported, match="or on S3"):
                loaded(db, "u", url, "iceberg")
