"""Results of statements: complete for programs, limited on terminals."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.cli import main
from strandline.cli.output import SHOWN_ROWS, SIZED_ROWS, Output
from strandline.tables.streaming_select import PlainScan
from tests.cli.conftest import Run

MANY = f"SELECT explode(sequence(1, {3 * SHOWN_ROWS})) AS n"


def test_json_is_written_while_rows_still_come(capsys: pytest.CaptureFixture[str]) -> None:
    written = []

    def rows() -> Iterator[tuple[int, str]]:
        for number in range(3):
            yield number, "ä"
            written.append(capsys.readouterr().out)

    Output(as_json=True).rows(("n", "t"), rows())
    written.append(capsys.readouterr().out)
    assert written[:2] == ['{"columns": ["n", "t"], "rows": [[0, "ä"]', ', [1, "ä"]']
    assert (
        "".join(written)
        == json.dumps({"columns": ["n", "t"], "rows": [[n, "ä"] for n in range(3)]}, ensure_ascii=False)
        + "\n"
    )


def test_a_table_is_written_while_rows_still_come_and_a_wide_value_further_down_sticks_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written = []

    def rows() -> Iterator[tuple[int | None, str]]:
        for number in range(SIZED_ROWS + 2):
            written.append(capsys.readouterr().out)
            yield (None, "ä") if number == 1 else (10**6 * number if number > SIZED_ROWS else number, "ä")

    Output().table(("n", "t"), rows())
    assert set(written[:SIZED_ROWS]) == {""}
    assert "".join(written[SIZED_ROWS:]).splitlines() == [
        "   n | t",
        "-----+--",
        "   0 | ä",
        "NULL | ä",
        *(f"{number:4} | ä" for number in range(2, SIZED_ROWS + 1)),
    ]
    assert capsys.readouterr().out == f"{10**6 * (SIZED_ROWS + 1)} | ä\n({SIZED_ROWS + 2} rows)\n"


def test_who_reads_only_the_first_lines_of_a_table_does_not_have_all_rows_read(
    shop: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in ``strandline sql "SELECT * FROM big" | head``."""
    bounds = ", ".join(map(str, range(500, 5000, 500)))
    shop(
        "sql",
        f"CREATE TABLE big (k Uint64, t Utf8, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = ({bounds}))",
    )
    Path("big.csv").write_text("k,t\n" + "".join(f"{n},{'x' * 90}\n" for n in range(5000)))
    assert shop("load", "big", "big.csv").code == 0
    monkeypatch.setenv("STRANDLINE_SCAN_ROWS", "0")
    portions: list[int] = []

    def counted(scan: PlainScan) -> Iterator[pa.Table]:
        for table in tables(scan):
            portions.append(table.num_rows)
            yield table

    tables = PlainScan.tables
    monkeypatch.setattr(PlainScan, "tables", counted)
    assert shop("sql", "SELECT * FROM big").out.endswith("(5000 rows)\n")
    assert portions == [500] * 10
    portions.clear()
    out, into = os.pipe()
    if hasattr(
        fcntl, "F_SETPIPE_SZ"
    ):  # Otherwise all rows might fit into the pipe before the reader closes it.
        fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 1 << 16)

    def head() -> list[str]:
        with open(out) as lines:
            return list(itertools.islice(lines, 10))

    with ThreadPoolExecutor(1) as beside, open(into, "w") as stdout, monkeypatch.context() as patch:
        first = beside.submit(head)
        patch.setattr(sys, "stdout", stdout)
        assert main(["sql", "SELECT * FROM big"]) == 0
        assert first.result()[:3] == ["  k | t\n", f"----+-{'-' * 90}\n", f"  0 | {'x' * 90}\n"]
    assert 2 <= len(portions) < 10


def test_an_empty_result_is_a_whole_document(shop: Run) -> None:
    assert (
        shop("sql", "SELECT id FROM orders WHERE id = 99", "--json").out
        == '{"columns": ["id"], "rows": []}\n'
    )


@pytest.mark.usefixtures("spark")
def test_a_program_gets_all_rows(shop: Run) -> None:
    assert shop("sql", MANY, "--json").json == {
        "columns": ["n"],
        "rows": [[n] for n in range(1, 3 * SHOWN_ROWS + 1)],
    }
    assert shop("sql", MANY).out.splitlines()[-2:] == [str(3 * SHOWN_ROWS), f"({3 * SHOWN_ROWS} rows)"]


@pytest.mark.usefixtures("spark")
def test_a_person_gets_the_first_rows_and_hears_that_there_are_more(
    shop: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Output, "is_terminal", True)
    assert shop("sql", MANY).out.splitlines()[-2:] == [
        str(SHOWN_ROWS),
        f"(more than {SHOWN_ROWS} rows, the first {SHOWN_ROWS} are shown)",
    ]
    assert shop("sql", MANY + f" LIMIT {SHOWN_ROWS}").out.splitlines()[-1] == f"({SHOWN_ROWS} rows)"


@pytest.mark.usefixtures("spark")
def test_a_query_that_fails_writes_no_half_of_a_document(shop: Run) -> None:
    failed = shop("sql", "SELECT raise_error('no') AS n", "--json")
    assert failed.code != 0
    assert failed.json["error"]["exit_code"] == failed.code


@pytest.mark.usefixtures("spark", "zone")
def test_times_are_in_utc_and_say_so_unless_they_have_no_zone(shop: Run) -> None:
    shop(
        "sql",
        "CREATE TABLE t (k Int32, t Timestamp, PRIMARY KEY (k)); UPSERT INTO t VALUES (1, '0001-01-01'), (2, '2024-11-03T05:30:00Z')",
    )
    for query in (
        "SELECT t FROM t ORDER BY k",
        "SELECT t FROM t ORDER BY k + 0",
    ):  # In the process, and on Spark.
        assert shop("sql", query, "--json").json["rows"] == [
            ["0001-01-01T00:00:00Z"],
            ["2024-11-03T05:30:00Z"],
        ]
        assert shop("sql", query).out.splitlines()[2:4] == ["0001-01-01 00:00:00Z", "2024-11-03 05:30:00Z"]
    naive = "SELECT TIMESTAMP_NTZ '2024-11-03 01:30:00' AS n, array(TIMESTAMP '2024-11-03 01:30:00') AS l"
    assert shop("sql", naive, "--json").json["rows"] == [["2024-11-03T01:30:00", ["2024-11-03T01:30:00Z"]]]
    assert shop("sql", naive).out.splitlines()[2] == '2024-11-03 01:30:00 | ["2024-11-03T01:30:00Z"]'


def test_parameters_are_bound_to_markers(run: Run) -> None:
    run("init", ".")
    run("sql", "CREATE TABLE t (k Uint64 NOT NULL, v Utf8, PRIMARY KEY (k))")
    text = "UPSERT INTO t VALUES (:k, :v); SELECT * FROM t WHERE v = :v"
    done = run("sql", text, "--param", "k=5", "--param", "v=O'Brien; ?", "--json")
    assert done.code == 0 and "O'Brien; ?" in done.out
    assert (
        run("sql", "SELECT k FROM t WHERE v = :v AND k IN (:k, :n)", *given("v='5'", "k=NULL", "n=-1")).code
        == 0
    )
    for wrong, said in (
        (["SELECT :v"], "has no value"),
        (["SELECT :v", *given("v=1", "w=2")], "'w'"),
        (["SELECT :v", *given("v")], "--param name=value"),
        (["SELECT :v", *given("v=1", "v=2")], "twice"),
    ):
        done = run("sql", *wrong)
        assert done.code != 0 and said in done.err


def given(*items: str) -> list[str]:
    return [part for item in items for part in ("--param", item)]
