"""``load`` of each format on the command line, and errors of files that do not match."""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Run

TABLE = pa.table({"id": [2, 3], "customer": ["eve", None], "total": [25, 30]})
CSV = "id,customer,total\n2,eve,25\n3,,30\n"
ROWS = "SELECT id, customer, total FROM orders ORDER BY id"
LOADED = [[1, "ada", 10], [2, "eve", 25], [3, None, 30]]


def test_a_missing_table_is_made_from_the_files(shop: Run) -> None:
    pq.write_table(TABLE, "rows.parquet")
    said = shop("load", "dir/new", "rows.parquet", "--key", "id")
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


@pytest.mark.parametrize("name", ["jsonl", "json"])
def test_what_sql_writes_goes_into_load_by_the_same_name(
    shop: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    written = shop("sql", ROWS, "--format", "jsonl").out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(written.encode())))
    assert shop("load", "copy", "-", "--format", name, "--key", "id").code == 0
    assert shop("sql", "SELECT id, customer, total FROM copy", "--format", "jsonl").out == written != ""


def test_a_pipe_with_a_name_is_read_as_stdin_is(shop: Run) -> None:
    """As in ``strandline load orders <(command) --format csv``."""
    os.mkfifo("pipe")
    threading.Thread(target=lambda: Path("pipe").write_text(CSV), daemon=True).start()
    said = shop("load", "orders", "pipe", "--format", "csv")
    assert said.code == 0, said.err
    assert shop("sql", ROWS, "--json").json["rows"] == LOADED
    assert "an empty file is not a valid header" in shop("load", "orders", "/dev/null", "--format", "csv").err


@pytest.mark.parametrize(("sign", "typed"), [(";", "';'"), ("\t", "$'\\t'")])
def test_a_header_with_another_delimiter_is_told(shop: Run, sign: str, typed: str) -> None:
    Path("other.csv").write_text(CSV.replace(",", sign))
    for table in ("orders", "new"):
        said = shop("load", table, "other.csv", "--key", "id")
        assert (said.code, f"use --delimiter {typed}." in said.err) == (7, True), said.err
    assert shop("load", "orders", "other.csv", "--delimiter", sign).code == 0


def test_what_does_not_fit_is_told_and_nothing_is_loaded(shop: Run) -> None:
    Path("bad.csv").write_text('id,customer,total\n5,"a\nb",1\n6,c,many\n')
    found = shop("load", "orders", "bad.csv")
    sentence, hint = found.err.strip().splitlines()
    assert found.code == 7
    assert sentence.startswith("error: bad.csv, line 4: column total of type Int64 cannot hold")
    assert hint.startswith("hint: Write a number")
    assert shop("describe", "/orders", "--json").json["rows"] == 2


def test_a_missing_table_without_a_key_is_refused(shop: Run) -> None:
    Path("rows.csv").write_text(CSV)
    assert shop("load", "nope", "rows.csv").code == 3
    assert shop("load", "nope", "rows.csv", "--key", "nope").code == 7
    Path("x.csv").write_text("x\n1.5\n")
    assert "looks like Double" in shop("load", "nope", "x.csv", "--key", "x").err
    Path("x.csv").write_text("id,v\n1,a\n1,\n")
    assert shop("load", "nope", "x.csv", "--key", "id", "--mode", "insert").code != 0
    assert (
        shop("describe", "nope").code == 3
    )  # The table was created by the failed load, and is dropped with it.


@pytest.mark.usefixtures("spark")
def test_much_parquet_is_read_on_spark(shop: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(TABLE.append_column("tags", pa.array([[1, 2], None])), "rows.parquet")
    with monkeypatch.context() as patch:
        patch.setenv("STRANDLINE_BULK_BYTES", "1")
        said = shop("load", "tagged", "rows.parquet", "--key", "id", "--json")
    assert (said.code, said.json["rows_read"], said.json["rows"]) == (0, None, 2)
    found = shop("sql", "SELECT id, tags FROM tagged ORDER BY id", "--json").json["rows"]
    assert found == [[2, "[1,2]"], [3, None]]
