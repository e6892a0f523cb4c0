"""``load`` from each format, and what it says about files that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")

ROWS = "SELECT id, customer, total FROM orders ORDER BY id"
LOADED = [[1, "ada", 10], [2, "eve", 25], [3, None, 30]]


def write(kind: str) -> str:
    if kind == "csv":
        Path("rows.csv").write_text("id,customer,total\n2,eve,25\n3,,30\n")
        return "rows.csv"
    if kind == "json":
        Path("rows.jsonl").write_text('{"id": 2, "customer": "eve", "total": 25}\n{"id": 3, "total": 30}\n')
        return "rows.jsonl"
    pq.write_table(pa.table({"id": [2, 3], "customer": ["eve", None], "total": [25, 30]}), "rows.parquet")
    return "rows.parquet"


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_each_format_gives_the_same_rows(shop: Run, kind: str, spark: SparkSession) -> None:
    said = shop("load", "orders", write(kind), "--json")
    assert (said.code, said.err) == (0, "")
    assert {k: said.json[k] for k in ("table", "created", "rows_before", "rows")} == {
        "table": "/orders",
        "created": False,
        "rows_before": 2,
        "rows": 3,
    }
    assert shop("sql", ROWS, "--json").json["rows"] == LOADED


def test_a_missing_table_is_made_from_the_files(shop: Run) -> None:
    said = shop("load", "dir/new", write("parquet"), "--key", "id")
    assert said.code == 0, said.err
    assert "created the table /dir/new" in said.out
    assert shop("describe", "dir/new", "--json").json["key"] == ["id"]


def test_csv_without_a_header(shop: Run) -> None:
    Path("plain.csv").write_text("2;eve;25\n3;;30\n")
    assert shop("load", "orders", "plain.csv", "--no-header", "--delimiter", ";").code == 0
    assert shop("sql", ROWS, "--json").json["rows"] == LOADED


@pytest.mark.parametrize(
    ("text", "args", "code"),
    [
        ("id,nope\n1,2\n", [], 7),
        ("customer\neve\n", [], 7),
        ("id,total\n5,many\n", [], 7),
        ("id,total\n1,5\n", ["--mode", "insert"], 6),
    ],
    ids=["unknown column", "no key", "not a number", "key exists"],
)
def test_files_that_do_not_fit_change_nothing(shop: Run, text: str, args: list[str], code: int) -> None:
    Path("bad.csv").write_text(text)
    said = shop("load", "orders", "bad.csv", *args)
    assert said.code == code, said
    sentence, hint = said.err.strip().splitlines()[-2:]  # the session of the tests logs what ours keeps quiet
    assert (sentence[:7], hint[:6]) == ("error: ", "hint: ")
    assert shop("describe", "/orders", "--json").json["rows"] == 2


def test_a_missing_table_without_a_key_is_refused(shop: Run) -> None:
    assert shop("load", "nope", write("csv")).code == 3
    assert shop("load", "nope", write("csv"), "--key", "nope").code == 7
