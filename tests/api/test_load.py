"""``load``: each format, invalid files, and large files."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline import Database
from strandline.api.load import NewTable, load
from strandline.errors import InvalidArgument, StrandlineError, Unavailable
from strandline.storage.external import External
from tests.backups.reading import open_at

LOADED = [(1, "ada", 10), (2, "eve", 25), (3, None, 30)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with open_at(tmp_path / "warehouse") as opened:
        opened.sql(
            "CREATE TABLE orders (id Uint64 NOT NULL, customer Utf8, total Int64, PRIMARY KEY (id), "
            "INDEX by_customer GLOBAL SYNC ON (customer) COVER (total)); "
            "UPSERT INTO orders (id, customer, total) VALUES (1, 'ada', 10), (2, 'bob', 20)"
        )
        yield opened


TABLE = pa.table({"id": [2, 3], "customer": ["eve", None], "total": [25, 30]})


def write(kind: str) -> str:
    if kind == "csv":
        Path("rows.csv").write_text("id,customer,total\n2,eve,25\n3,,30\n")
        return "rows.csv"
    if kind == "json":
        Path("rows.jsonl").write_text('{"id": 2, "customer": "eve", "total": 25}\n{"id": 3, "total": 30}\n')
        return "rows.jsonl"
    if kind == "packed":
        Path("rows.csv.gz").write_bytes(gzip.compress(b"id,customer,total\n2,eve,25\n3,,30\n"))
        return "rows.csv.gz"
    if kind == "pattern":
        for row in TABLE.to_pylist():
            pq.write_table(pa.Table.from_pylist([row], TABLE.schema), f"part-{row['id']}.parquet")
        return "part-*.parquet"
    if kind == "folder":
        Path("rows").mkdir()
        pq.write_table(TABLE, "rows/part.parquet")
        Path("rows/_SUCCESS").touch()
        return "rows"
    if kind in ("arrow", "stream"):
        new = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with new("rows.arrow", TABLE.schema) as writer:
            writer.write_table(TABLE)
        return "rows.arrow"
    if kind == "delta":
        import deltalake

        deltalake.write_deltalake("delta", TABLE.slice(0, 1))
        deltalake.write_deltalake("delta", TABLE.slice(1), mode="append")
        return "delta"
    if kind == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog

        Path("lake").mkdir()
        place = Path("lake").absolute().as_uri()
        catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=place)
        catalog.create_namespace("n")
        for part in (TABLE.slice(0, 1), TABLE.slice(1)):
            catalog.create_table_if_not_exists("n.t", TABLE.schema).append(part)
        catalog.close()
        return "lake/n/t"
    pq.write_table(TABLE, "rows.parquet")
    return "rows.parquet"


KINDS = ("csv", "json", "parquet", "packed", "pattern", "folder", "arrow", "stream", "delta", "iceberg")


@pytest.mark.usefixtures("folder")
def test_each_format_gives_the_same_rows(db: Database) -> None:
    for kind in KINDS:
        db.sql("DELETE FROM orders ON (id) VALUES (3); UPSERT INTO orders (id, total) VALUES (2, 0)")
        done = load(db, "orders", External(places=(write(kind),)))
        assert (done.created, done.read, done.before) == (False, 2, 2), kind
        assert sorted(db.sql("SELECT id, customer, total FROM orders").rows()) == LOADED, kind
    assert db.check("orders").problems == []  # The index as well.
    assert not list(Path("warehouse/staged").iterdir())


MISFITS: list[tuple[str, dict[str, Any], str]] = [
    ("id,nope\n1,2\n", {}, "a column 'nope', which /orders does not have"),
    ("customer\neve\n", {}, "no column id, which is part of the key"),
    ('id,customer,total\n5,"a\nb",1\n6,c,many\n', {}, "bad.csv, line 4: column total of type Int64"),
    ("id,total\n5,1\n\n6,2,3\n", {}, "bad.csv, line 4: there are 3 values for 2 columns"),
    ("id,total\n5,1\n,2\n", {}, "bad.csv, line 3: column id has no value"),
    ("id,customer\n5,\udcff\n", {}, "bad.csv, line 2, column 2: it is not text in UTF-8"),
    ("id,id\n1,2\n", {}, "bad.csv, line 1: id, id is not a valid header"),
    ("id,total\n1,5\n", {"mode": "INSERT"}, "is already in the table"),
    ("id,total\n1,5\n", {"wanted": NewTable(key=["total"])}, "exists with the key id, not total"),
    ("id,total\n1,5\n", {"wanted": NewTable(types={"total": "Utf8"})}, "exists as Int64, not as Utf8"),
    ("id,total\n1,5\n", {"delimiter": "ab"}, "is not a valid delimiter"),
    ("1;5\n", {"delimiter": ";", "header": False}, "line 1: there are 2 values for the 3 columns"),
    ('{"id": 1}\n{"id": }\n', {"kind": "jsonl"}, "bad.csv, line 2, column 8: it is not JSON"),
    ('{"id": 1}\n{"id": "x"}\n', {"kind": "jsonl"}, "bad.csv, line 2: column id of type Uint64"),
    ('id,customer\n5,"a\n6,b\n', {}, "bad.csv, line 2: it cannot be read as CSV: unexpected end"),
    ("\udcff\udcfeid\n1\n", {}, "bad.csv, line 1, column 1: it is not text in UTF-8"),
    (
        '{"id": 5}\n{"id": 6, "customer": "\\ud800"}\n',
        {"kind": "jsonl"},
        "line 2: a text has a lone surrogate",
    ),
    ('{"id": null}\n', {"kind": "jsonl"}, "bad.csv, line 1: column id has no value"),
    ("[1]\n", {"kind": "jsonl"}, "bad.csv, line 1: it is not an object"),
    ("id\n", {"kind": "parquet"}, "bad.csv cannot be read as Parquet"),
    ("id\n", {"kind": "arrow"}, "bad.csv cannot be read as Arrow"),
    ("id\n", {"kind": "delta"}, "bad.csv has no log of a Delta table"),
    ("id\n", {"kind": "iceberg"}, "bad.csv has no metadata of an Iceberg table"),
]


@pytest.mark.usefixtures("folder")
def test_files_that_do_not_fit_change_nothing(db: Database) -> None:
    for text, options, said in MISFITS:
        Path("bad.csv").write_text(text, errors="surrogateescape")
        how = {name: options[name] for name in ("mode", "wanted") if name in options}
        source = {name: value for name, value in options.items() if name not in how}
        with pytest.raises(StrandlineError) as found:
            load(db, "orders", External(places=("bad.csv",), **source), **how)
        assert said in found.value.message, found.value
        assert "restore" not in str(found.value)
    for place in ("nope.csv", "nope-*.csv", "https://example.org/x.csv", "s3://bucket"):
        with pytest.raises((Unavailable, InvalidArgument)):
            load(db, "orders", External(places=(place,), kind="csv"))
    assert db.describe("orders")["rows"] == 2


@pytest.mark.usefixtures("folder")
def test_lines_around_the_rows_are_no_rows(db: Database) -> None:
    for head, rows in (
        ("\n\r\nid,customer\n", "5,a\n"),
        ("\ufeff\nid,customer\n", "\n5,a"),
        ("id,customer\n", '5,"a"\n\n'),
        ("id,customer\r\n", "5,a\r\n"),
        ("id,customer", ""),
    ):
        Path("odd.csv").write_bytes((head + rows).encode())
        load(db, "orders", External(places=("odd.csv",)))
        found = db.sql("SELECT id, customer FROM orders WHERE id > 2").rows()
        assert found == ([(5, "a")] if rows else []), head
        db.sql("DELETE FROM orders WHERE id > 2")


@pytest.mark.usefixtures("folder")
def test_numbers_within_json_keep_their_digits(db: Database) -> None:
    Path("n.jsonl").write_text('{"k": 1, "j": {"a": [1.10, 12345678901234567890.123, null, true, "x"]}}\n')
    load(db, "j", External(places=("n.jsonl",)), wanted=NewTable(key=["k"]))
    assert db.sql("SELECT j FROM j").rows() == [('{"a": [1.10, 12345678901234567890.123, null, true, "x"]}',)]


@pytest.mark.usefixtures("folder")
def test_typed_files_have_the_same_columns_each_once(db: Database) -> None:
    pq.write_table(pa.table({"id": [1]}), "one.parquet")
    pq.write_table(pa.table({"id": [2], "total": [2]}), "two.parquet")
    for places in (("one.parquet", "two.parquet"), ("two.parquet", "one.parquet")):
        with pytest.raises(InvalidArgument, match=r"one\.parquet has no column total, which two\.parq"):
            load(db, "orders", External(places=places))
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"]), "two.parquet")
    with pytest.raises(InvalidArgument, match=r"two\.parquet has two columns id"):
        load(db, "orders", External(places=("two.parquet",)))


@pytest.mark.usefixtures("folder")
def test_typed_files_say_the_row_that_does_not_fit(db: Database) -> None:
    for table, said in (
        (pa.table({"id": [1, -5]}), "bad.parquet, row 2: column id of type Uint64 cannot hold"),
        (pa.table({"id": ["x"]}), "bad.parquet: column id of type Uint64 cannot be made from"),
        (pa.table({"id": [None, 1]}), "bad.parquet, row 1: column id has no value"),
    ):
        pq.write_table(table, "bad.parquet")
        with pytest.raises(InvalidArgument, match=said):
            load(db, "orders", External(places=("bad.parquet",)))


@pytest.mark.usefixtures("folder")
def test_much_is_staged_a_part_at_a_time_in_one_commit(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.storage.staged_files.RUN_ROWS", 100)
    monkeypatch.setattr("strandline.storage.external.csv.BLOCK_BYTES", 1000)
    lines = [f'{n},"customer {n % 7}\n",{n}' for n in range(1000, 2000)]
    Path("many.csv").write_text("id,customer,total\n" + "\n".join(lines) + "\n")
    before = db.step
    assert load(db, "orders", External(places=("many.csv",))).read == 1000
    assert (db.step, db.describe("orders")["rows"]) == (before + 1, 1002)
    assert db.check("orders").problems == []
    assert db.sql("SELECT customer FROM orders WHERE id = 1500").rows() == [("customer 2\n",)]
    Path("many.csv").write_text("id,total\n" + "\n".join(f"{n},{n}" for n in range(1000)) + "\n7,x\n")
    with pytest.raises(InvalidArgument, match=r"many\.csv, line 1002: column total"):
        load(db, "orders", External(places=("many.csv",)))
