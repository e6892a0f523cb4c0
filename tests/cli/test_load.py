"""``load`` from each format, as it would be typed, and what it says about files that do not fit."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Run

ROWS = "SELECT id, customer, total FROM orders ORDER BY id"
LOADED = [[1, "ada", 10], [2, "eve", 25], [3, None, 30]]
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


def test_each_format_gives_the_same_rows(shop: Run) -> None:
    for kind in KINDS:
        assert (
            shop(
                "sql", "DELETE FROM orders ON (id) VALUES (3); UPSERT INTO orders (id, total) VALUES (2, 0)"
            ).code
            == 0
        )
        said = shop("load", "orders", write(kind), "--json")
        assert (said.code, said.err) == (0, ""), kind
        assert {k: said.json[k] for k in ("table", "created", "rows_read", "rows_before", "rows")} == {
            "table": "/orders",
            "created": False,
            "rows_read": 2,
            "rows_before": 2,
            "rows": 3,
        }
        assert shop("sql", ROWS, "--json").json["rows"] == LOADED, kind
    assert shop("check", "orders").code == 0  # Its index as well.
    assert not list(Path("wh/staged").iterdir())


def test_a_missing_table_is_made_from_the_files(shop: Run) -> None:
    said = shop("load", "dir/new", write("parquet"), "--key", "id")
    assert said.code == 0, said.err
    assert "created the table /dir/new" in said.out
    assert shop("describe", "dir/new", "--json").json["key"] == ["id"]


ODD = """\
id,big,text,zip,amount,day,at,yes,none,mixed
1,18446744073709551615,"two
lines, ""quoted\""",00420,1.5,2026-01-31,2026-01-31T12:00:00Z,true,,1
2,0,"",10115,2e3,1999-12-31,2026-01-31 13:00:00.5+01:00,FALSE,,x
"""


def test_types_are_told_from_the_values_unless_they_are_given(shop: Run) -> None:
    Path("odd.csv").write_text(ODD)
    assert shop("load", "odd", "odd.csv", "--key", "id", "--type", "amount=Decimal(10,2)").code == 0
    described = shop("describe", "odd", "--json").json
    assert {column["name"]: column["type"] for column in described["columns"]} == {
        "id": "Int64",
        "big": "Uint64",
        "text": "Utf8",
        "zip": "Utf8",
        "amount": "Decimal(10,2)",
        "day": "Date",
        "at": "Timestamp",
        "yes": "Bool",
        "none": "Utf8",
        "mixed": "Utf8",
    }
    assert shop("sql", "SELECT * FROM odd ORDER BY id", "--json").json["rows"] == [
        [
            1,
            2**64 - 1,
            'two\nlines, "quoted"',
            "00420",
            "1.50",
            "2026-01-31",
            "2026-01-31T12:00:00Z",
            True,
            None,
            "1",
        ],
        [2, 0, "", "10115", "2000.00", "1999-12-31", "2026-01-31T12:00:00.500000Z", False, None, "x"],
    ]
    Path("odd.jsonl").write_text(
        '{"id": 1, "n": [1], "f": 1.5, "s": "2026-01-31"}\n{"id": 9, "f": 2, "b": "x"}\n'
    )
    assert shop("load", "lines", "odd.jsonl", "--key", "id").code == 0
    types = [column["type"] for column in shop("describe", "lines", "--json").json["columns"]]
    assert types == ["Int64", "Json", "Double", "Date", "Utf8"]


def test_csv_without_a_header_from_stdin(shop: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b"2;eve;25\n3;-;30\n"))
    monkeypatch.setattr(sys, "stdin", typed)
    args = ["--format", "csv", "--no-header", "--delimiter", ";", "--null", "-"]
    assert shop("load", "orders", "-", *args).code == 0
    assert shop("sql", ROWS, "--json").json["rows"] == LOADED
    Path("tabs.tsv").write_text("4\tzoe\n")
    assert shop("load", "orders", "tabs.tsv", "--no-header", "--columns", "id,customer").code == 0


MISFITS: list[tuple[str, list[str], int, str]] = [
    ("id,nope\n1,2\n", [], 7, "a column 'nope', which /orders does not have"),
    ("customer\neve\n", [], 7, "no column id, which is part of the key"),
    ('id,customer,total\n5,"a\nb",1\n6,c,many\n', [], 7, "bad.csv, line 4: column total of type Int64"),
    ("id,total\n5,1\n\n6,2,3\n", [], 7, "bad.csv, line 4: there are 3 values for 2 columns"),
    ("id,total\n5,1\n,2\n", [], 7, "bad.csv, line 3: column id has no value"),
    ("id,customer\n5,\udcff\n", [], 7, "bad.csv, line 2, column 2: it is not text in UTF-8"),
    ("id,id\n1,2\n", [], 7, "bad.csv, line 1: id, id is no header"),
    ("id,total\n1,5\n", ["--mode", "insert"], 6, "is already in the table"),
    ("id,total\n1,5\n", ["--key", "total"], 7, "its key is id, not total"),
    ("id,total\n1,5\n", ["--type", "total=Utf8"], 7, "is there as Int64, not as Utf8"),
    ("id,total\n1,5\n", ["--delimiter", "ab"], 7, "cannot stand between two values"),
    ('{"id": 1}\n{"id": }\n', ["--format", "json"], 7, "bad.csv, line 2, column 8: it is not JSON"),
    ('{"id": 1}\n{"id": "x"}\n', ["--format", "json"], 7, "bad.csv, line 2: column id of type Uint64"),
    ("[1]\n", ["--format", "json"], 7, "bad.csv, line 1: it holds no object"),
    ("id\n", ["--format", "parquet"], 7, "bad.csv cannot be read as Parquet"),
    ("id\n", ["--format", "arrow"], 7, "bad.csv cannot be read as Arrow"),
    ("id\n", ["--format", "delta"], 15, "bad.csv cannot be read as a Delta table"),
]


def test_files_that_do_not_fit_change_nothing(shop: Run) -> None:
    for text, args, code, said in MISFITS:
        Path("bad.csv").write_text(text, errors="surrogateescape")
        found = shop("load", "orders", "bad.csv", *args)
        assert (found.code, said in found.err) == (code, True), found
        sentence, hint = found.err.strip().splitlines()
        assert (sentence[:7], hint[:6]) == ("error: ", "hint: ")
        assert "restore" not in found.err
    assert shop("describe", "/orders", "--json").json["rows"] == 2


def test_typed_files_say_the_row_that_does_not_fit(shop: Run) -> None:
    pq.write_table(pa.table({"id": [1, -5]}), "bad.parquet")
    assert (
        "bad.parquet, row 2: column id of type Uint64 cannot hold"
        in shop("load", "orders", "bad.parquet").err
    )
    pq.write_table(pa.table({"id": ["x"]}), "bad.parquet")
    assert (
        "bad.parquet: column id of type Uint64 cannot be made from"
        in shop("load", "orders", "bad.parquet").err
    )


def test_a_missing_table_without_a_key_is_refused(shop: Run) -> None:
    assert shop("load", "nope", write("csv")).code == 3
    assert shop("load", "nope", write("csv"), "--key", "nope").code == 7
    Path("x.csv").write_text("x\n1.5\n")
    assert "looks like Double" in shop("load", "nope", "x.csv", "--key", "x").err
    Path("x.csv").write_text("id,v\n1,a\n1,\n")
    assert shop("load", "nope", "x.csv", "--key", "id", "--mode", "insert").code != 0
    assert shop("describe", "nope").code == 3  # It was made for the rows, and is gone with them.


def test_much_is_staged_a_part_at_a_time_in_one_commit(shop: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.storage.staging.RUN_ROWS", 100)
    monkeypatch.setattr("strandline.storage.external.csv.BLOCK_BYTES", 1000)
    lines = [f'{n},"customer {n % 7}\n",{n}' for n in range(1000, 2000)]
    Path("many.csv").write_text("id,customer,total\n" + "\n".join(lines) + "\n")
    said = shop("load", "orders", "many.csv", "--json")
    assert (said.json["rows_read"], said.json["rows"]) == (1000, 1002)
    assert shop("check", "orders").code == 0
    found = shop("sql", "SELECT customer FROM orders WHERE id = 1500", "--json").json["rows"]
    assert found == [["customer 2\n"]]
    Path("many.csv").write_text("id,total\n" + "\n".join(f"{n},{n}" for n in range(1000)) + "\n7,x\n")
    assert "many.csv, line 1002: column total" in shop("load", "orders", "many.csv").err
