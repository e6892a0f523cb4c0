"""``db.load`` and ``db.export``: the same work as the commands, with typed arguments and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from strandline.errors import AlreadyExists, InvalidArgument, PathNotFound, SyntaxFault


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_table_goes_out_and_comes_back(db: Database) -> None:
    Path("a.csv").write_text("id;v\n1;one\n2;-\n")
    Path("b.csv").write_text("id;v\n3;three\n")
    made = db.load("t", ["a.csv", Path("b.csv")], key=["id"], types={"id": "Uint64"}, delimiter=";", null="-")
    assert (made.table, made.created, made.files, made.read, made.before) == ("/t", True, 2, 3, 0)
    assert db.describe("/t")["columns"][0]["type"] == "Uint64"
    done = db.export(Path("out.jsonl"), table="t", where="id > 1", at=made.step)
    assert (done.place, done.format, done.files, done.rows) == ("out.jsonl", "jsonl", 1, 2)
    assert Path("out.jsonl").read_text() == '{"id": 2, "v": null}\n{"id": 3, "v": "three"}\n'
    assert db.export("ids", query="SELECT id FROM t", format="csv").rows == 3
    with pytest.raises(AlreadyExists):
        db.export("ids", table="t")
    assert db.export("ids", table="t", overwrite=True).format == "parquet"
    again = db.load("t", "ids", mode="replace")
    assert (again.created, again.before, again.read) == (False, 3, 3)
    db.create_collection("c", tables=["t"]).backup()
    db.sql("DELETE FROM t WHERE id = 1")
    assert db.export("backup.csv", table="/t", backup="c").rows == 3
    assert db.export("now.csv", table="/t").rows == 2


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, InvalidArgument),
        ({"table": "t", "query": "SELECT 1"}, InvalidArgument),
        ({"query": "SELECT * FROM t", "where": "id = 1"}, InvalidArgument),
        ({"query": "SELECT FROM"}, SyntaxFault),
        ({"table": "t", "at": 1, "backup": "c"}, InvalidArgument),
        ({"table": "t", "format": "xml"}, InvalidArgument),
        ({"table": "missing"}, PathNotFound),
    ],
)
def test_what_is_no_export_is_refused(db: Database, given: Any, error: type[Exception]) -> None:
    db.sql("CREATE TABLE t (id Int64, PRIMARY KEY (id))")
    with pytest.raises(error):
        db.export("out", **given)
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key": "id"}, "key is a text"),
        ({"key": ["id"], "columns": "id"}, "columns is a text"),
        ({"key": ["id"], "mode": "merge"}, "no mode 'merge'"),
        ({"key": ["id"], "format": "xml"}, "no format 'xml'"),
        ({"key": ["x"]}, "the files have no column x"),
    ],
)
def test_what_is_no_load_is_refused(db: Database, given: Any, message: str) -> None:
    Path("a.csv").write_text("id,v\n1,one\n")
    with pytest.raises(InvalidArgument, match=message):
        db.load("t", "a.csv", **given)
    assert db.ls() == []
