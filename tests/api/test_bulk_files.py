"""Files above the budget of the process: executors read them, with the same rows, types and errors."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from strandline import Database
from strandline.api.load import Loaded, NewTable, load
from strandline.errors import InvalidArgument, PreconditionFailed, StrandlineError
from strandline.settings import Settings
from strandline.storage.external import External
from strandline.storage.spark import external

ROWS = 3000
TIMES = [
    datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(minutes=n, microseconds=n * 1001)
    for n in range(ROWS)
]
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "customer": [None if n % 7 == 0 else f'c "{n % 50}"\n, ä' for n in range(ROWS)],
        "total": pa.array([n * 0.5 for n in range(ROWS)], pa.float64()),
        "at": pa.array(TIMES, pa.timestamp("us", tz="UTC")),
        "day": pa.array([time.date() for time in TIMES], pa.date32()),
    }
)
LARGE = Settings(bulk_bytes=0, shard_bytes=1 << 14)
"""Everything counts as large, and files are read in parts of 16 kB."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def large(connect: Callable[..., Database], spark: Any) -> Database:
    return connect(spark=spark, settings=LARGE)


def csv(table: pa.Table, place: str) -> str:
    pa_csv.write_csv(table, place)
    return place


def write(kind: str) -> str:
    shuffled = TABLE.take(pa.array([n * 7919 % ROWS for n in range(ROWS)]))
    if kind == "csv":
        return csv(shuffled, "rows.csv")
    if kind == "packed":
        Path("rows.csv.gz").write_bytes(gzip.compress(Path(csv(shuffled, "plain")).read_bytes()))
        return "rows.csv.gz"
    if kind == "folder":
        Path("rows").mkdir()
        for n in range(3):
            csv(shuffled.slice(n * ROWS // 3, ROWS // 3), f"rows/{n}.csv")
        return "rows"
    if kind == "jsonl":
        lines = (json.dumps(row, default=str) + "\n" for row in shuffled.to_pylist())
        Path("rows.jsonl").write_text("".join(lines))
        return "rows.jsonl"
    if kind == "arrow":
        with pa.ipc.new_file("rows.arrow", shuffled.schema) as writer:
            writer.write_table(shuffled, max_chunksize=500)
        return "rows.arrow"
    if kind == "parquet":
        pq.write_table(shuffled, "rows.parquet")
        return "rows.parquet"
    if kind == "delta":
        import deltalake

        deltalake.write_deltalake("delta", shuffled.slice(0, 1000).drop(["at"]), partition_by=["day"])
        rest = shuffled.slice(1000)
        deltalake.write_deltalake("delta", rest, mode="append", schema_mode="merge", partition_by=["day"])
        deltalake.DeltaTable("delta").delete("id % 1000 = 999")
        return "delta"
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=Path("lake").absolute().as_uri())
    catalog.create_namespace("n")
    for n in range(3):
        part = shuffled.slice(n * ROWS // 3, ROWS // 3)
        table = catalog.create_table_if_not_exists("n.t", shuffled.schema)
        table.append(part)
    table.delete("id = 17")
    return table.metadata_location


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of parts of each load that executors read."""
    found: list[int] = []
    rows_of = external.rows_of

    def counted(spark: Any, incoming: Any, *rest: Any) -> Any:
        found.append(len(incoming.parts))
        return rows_of(spark, incoming, *rest)

    monkeypatch.setattr(external, "rows_of", counted)
    return found


PARTS = {
    "csv": range(5, 99),
    "packed": [1],
    "folder": range(6, 99),
    "jsonl": range(5, 99),
    "arrow": [1],
    "parquet": [1],
    "delta": range(2, 9),
    "iceberg": [3],
}


@pytest.mark.parametrize("kind", PARTS)
def test_rows_and_types_are_those_of_a_load_in_the_process(
    large: Database, connect: Callable[..., Database], spread: list[int], kind: str
) -> None:
    place = write(kind)
    small = connect()
    for db in (small, large):
        loaded: Loaded = load(db, "/t", External(places=(place,)), wanted=NewTable(key=["id"]))
        assert loaded.created
    one, other = small.describe("/t"), large.describe("/t")
    assert [other[name] for name in ("columns", "rows", "digest")] == [
        one[name] for name in ("columns", "rows", "digest")
    ]
    assert other["rows"] >= ROWS - 3
    (parts,) = spread
    assert parts in PARTS[kind]


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        (
            "csv",
            ("\n2500,", "\ntwo,"),
            "rows.csv, line {}: column id of type Int64 cannot hold the str 'two'",
        ),
        ("csv", ("\n2500,", "\n,"), "rows.csv, line {}: column id has no value, and it may not be NULL"),
        ("jsonl", ('{"id": 2500,', '{"id": 2500.5,'), "rows.jsonl, line {}: column id of type Int64"),
        ("jsonl", ('{"id": 2500,', '{"id" 2500,'), "rows.jsonl, line {}, column 7: it is not JSON"),
    ],
)
def test_an_error_names_file_line_and_column_and_leaves_nothing(
    large: Database, kind: str, change: tuple[str, str], said: str
) -> None:
    place = Path(write(kind))
    text = place.read_text()
    line = text[: text.index(change[0]) + 1].count("\n") + 1
    place.write_text(text.replace(*change))
    large.sql(
        "CREATE TABLE t (id Int64 NOT NULL, customer Utf8, total Double, at Timestamp, day Date, "
        "PRIMARY KEY (id))"
    )
    with pytest.raises(StrandlineError) as refused:
        load(large, "/t", External(places=(str(place),)))
    assert refused.value.message.startswith(said.format(line))
    assert isinstance(refused.value, InvalidArgument)
    assert large.describe("/t")["rows"] == 0
    assert not [name for name in large._runtime.files.names() if name.endswith(".parquet")]


def test_the_last_row_of_a_key_counts_and_insert_refuses_it(large: Database) -> None:
    rows = [(n % 1000, f"v{n}") for n in range(ROWS)]
    Path("rows.csv").write_text("id,v\n" + "".join(f"{k},{v}\n" for k, v in rows))
    large.sql("CREATE TABLE t (id Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (id))")
    with pytest.raises(PreconditionFailed, match="occurs twice"):
        load(large, "/t", External(places=("rows.csv",)), "INSERT")
    large.sql("UPSERT INTO t (id, n) VALUES (1, 5)")
    load(large, "/t", External(places=("rows.csv",)))
    assert dict(large.sql("SELECT id, v FROM t").rows()) == dict(rows)
    assert large.sql("SELECT n FROM t WHERE id = 1").rows() == [(5,)]
