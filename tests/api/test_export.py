"""EXPORT: other tools read all rows, a failure leaves nothing, and a load restores the table."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline import Database
from strandline.api.load import NewTable, load
from strandline.errors import (
    AlreadyExists,
    Corrupted,
    InvalidArgument,
    PreconditionFailed,
    StrandlineError,
    SyntaxFault,
    Unavailable,
)
from strandline.storage.external import External
from strandline.storage.objects import ObjectFiles
from strandline.storage.outgoing import Format, encode_rows
from tests.backups.reading import open_at
from tests.backups.test_read_without import EVERY_TYPE, VALUES
from tests.s3 import S3

FORMATS: list[Format] = ["csv", "jsonl", "parquet"]
MOMENT = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NAMES = [
    "b",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "f",
    "d",
    "dc",
    "s",
    "t",
    "j",
    "da",
    "dt",
    "ts",
]
FULL = (
    *(True, -128, -32768, -(2**31), -(2**63), 255, 65535, 2**32 - 1, 2**64 - 1, 1.5, -2.25),
    *(Decimal("1234567890123.123456789"), b"\x00\xff", "ü", '{"a": 1}', date(2026, 1, 31), MOMENT),
    datetime(1969, 12, 31, 23, 59, 59, 999999, timezone.utc),
)
ROWS = [tuple([None] * len(NAMES)), FULL]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database for all tests; no test changes the table ``every``."""
    with open_at(
        tmp_path_factory.mktemp("export") / "warehouse", settings={"history_seconds": 1e9}
    ) as opened:
        opened.sql(EVERY_TYPE)
        opened.sql(VALUES)
        opened.sql(
            "CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'one')"
        )
        opened.sql("CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster')")
        opened.sql("BACKUP c")
        opened.sql("UPSERT INTO t (k, v) VALUES (2, 'two,\n\"2\"')")
        yield opened


def listed(table: Any) -> list[tuple[Any, ...]]:
    """Return rows of Arrow data as Python values."""
    found = pa.table(table) if not isinstance(table, pa.Table) else table
    rows = zip(*(found.column(name).to_pylist() for name in NAMES), strict=True)
    return sorted((tuple(map(_value, row)) for row in rows), key=lambda row: row[8] is not None)


def _value(value: Any) -> Any:
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)  # Formats without Uint64 use Decimal.
    return value.astimezone(timezone.utc) if isinstance(value, datetime) else value


def exported(db: Database, place: Path, what: str = "every", more: str = "") -> str:
    db.sql(f"EXPORT {what} TO '{place}' {more}")
    return str(place)


def test_pandas_polars_and_duckdb_read_parquet(db: Database, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="the package pandas is not installed")
    polars = pytest.importorskip("polars", reason="the package polars is not installed")
    duckdb = pytest.importorskip("duckdb", reason="the package duckdb is not installed")
    file = exported(db, tmp_path / "every.parquet")
    assert listed(pq.read_table(file)) == ROWS
    assert listed(pa.Table.from_pandas(pandas.read_parquet(file, dtype_backend="pyarrow"))) == ROWS
    assert listed(polars.read_parquet(file).to_arrow()) == ROWS
    assert listed(duckdb.sql(f"SELECT * FROM '{file}'").to_arrow_table()) == ROWS


TYPED = ", ".join(
    f"'{name}': '{type_}'"
    for name, type_ in zip(
        NAMES,
        [
            "BOOLEAN",
            "TINYINT",
            "SMALLINT",
            "INTEGER",
            "BIGINT",
            "UTINYINT",
            "USMALLINT",
            "UINTEGER",
            "UBIGINT",
            "FLOAT",
            "DOUBLE",
            "DECIMAL(22,9)",
            "BLOB",
            "VARCHAR",
            "VARCHAR",
            "DATE",
            "TIMESTAMPTZ",
            "TIMESTAMPTZ",
        ],
        strict=True,
    )
)


def test_duckdb_reads_csv_and_json_lines(db: Database, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="the package duckdb is not installed")
    text = exported(db, tmp_path / "every.csv")
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    assert (
        listed(connection.sql(f"SELECT * FROM read_csv('{text}', columns = {{{TYPED}}})").to_arrow_table())
        == ROWS
    )
    lines = exported(db, tmp_path / "every.jsonl")
    found = connection.sql(
        f"SELECT * REPLACE (CAST(s AS BLOB) AS s) FROM read_json('{lines}', columns = {{{TYPED.replace('BLOB', 'VARCHAR')}}})"
    )
    assert listed(found.to_arrow_table()) == ROWS
    assert [json.loads(line)["u64"] for line in Path(lines).read_text().splitlines()] == [None, 2**64 - 1]


def test_deltalake_reads_a_delta_table_and_a_new_version_replaces_it(db: Database, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")
    place = exported(db, tmp_path / "delta", more="WITH (FORMAT = 'delta')")
    assert listed(deltalake.DeltaTable(place).to_pyarrow_table()) == ROWS
    with pytest.raises(AlreadyExists):
        exported(db, tmp_path / "delta", more="WITH (FORMAT = 'delta')")
    exported(db, tmp_path / "delta", "t", more="WITH (FORMAT = 'delta', OVERWRITE = 'true')")
    assert deltalake.DeltaTable(place).to_pyarrow_table().num_rows == 2
    assert deltalake.DeltaTable(place, version=0).to_pyarrow_table().num_rows == 2


@pytest.mark.slow
def test_pyiceberg_reads_an_iceberg_table_and_its_files(db: Database, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")
    from pyiceberg.table import StaticTable

    place = exported(db, tmp_path / "ice berg", more="WITH (FORMAT = 'iceberg')")
    (metadata,) = (tmp_path / "ice berg" / "metadata").glob("*.metadata.json")
    assert listed(StaticTable.from_metadata(str(metadata)).scan().to_arrow()) == ROWS
    for more in ("", ", OVERWRITE = 'true'"):
        with pytest.raises((AlreadyExists, PreconditionFailed)):
            exported(db, tmp_path / "ice berg", more=f"WITH (FORMAT = 'iceberg'{more})")
    assert Path(place).is_dir()


@pytest.mark.parametrize(
    "name", ["every.parquet", "every.csv", "every.jsonl.gz", "folder", "delta", "iceberg"]
)
def test_a_load_brings_back_the_very_rows(db: Database, tmp_path: Path, name: str) -> None:
    place = exported(
        db, tmp_path / name, more=f"WITH (FORMAT = '{name}')" if name in ("delta", "iceberg") else ""
    )
    copy = f"/copies/{name.partition('.')[0]}_{name.count('.')}_{len(name)}"
    db.sql(EVERY_TYPE.replace("every", f"`{copy}`"))
    load(db, copy, External(places=(place,)))
    ours = [{k: db.describe(path)[k] for k in ("rows", "digest")} for path in ("/every", copy)]
    assert ours[0] == ours[1]


def test_a_load_of_exported_parquet_makes_the_same_table(db: Database, tmp_path: Path) -> None:
    db.sql("CREATE TABLE of_key (`a b` Utf8, k Datetime NOT NULL, j Json, PRIMARY KEY (k, `a b`))")
    place = exported(db, tmp_path / "t.parquet", "of_key")
    load(db, "/made", External(places=(place,)))
    made, first = (db.describe(path) for path in ("/made", "/of_key"))
    assert made["key"] == first["key"]
    assert [c["type"] for c in made["columns"]] == [c["type"] for c in first["columns"]]


def test_a_moment_a_backup_and_a_query_are_exported(db: Database, tmp_path: Path) -> None:
    step = db.describe("/t")["step"]
    for number, what in enumerate(
        (f"t AT {step - 1}", f"t VERSION AS OF {step - 1}", "t IN BACKUP c", "TABLE t IN BACKUP c")
    ):
        file = tmp_path / f"{number}.csv"
        exported(db, file, what)
        assert file.read_text() == 'k,v\n1,"one"\n', what
    exported(db, tmp_path / "q.csv", "(SELECT v AS x FROM t WHERE (k) = 2)")
    assert (tmp_path / "q.csv").read_text() == 'x\n"two,\n""2"""\n'
    later = db.sql(
        "EXPORT t AT TIMESTAMP '2999-01-01T00:00:00Z' TO ? WITH (FORMAT = 'jsonl')", [str(tmp_path / "now")]
    )
    assert later.rows() == [(str(tmp_path / "now"), "jsonl", 1, 2)]
    exported(db, tmp_path / "none.csv", "(SELECT * FROM t WHERE k = 99)")
    assert (tmp_path / "none.csv").read_text() == "k,v\n"


def test_an_existing_target_is_refused_unless_it_may_be_replaced(db: Database, tmp_path: Path) -> None:
    for name in ("t.csv", "folder"):
        exported(db, tmp_path / name, "t AT 4")
        with pytest.raises(AlreadyExists):
            exported(db, tmp_path / name, "t")
        exported(db, tmp_path / name, "t", "WITH (OVERWRITE = true)")
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["folder", "part-00000.parquet", "t.csv"]
    assert pq.read_table(tmp_path / "folder").num_rows == 2
    (tmp_path / "folder" / "mine.txt").touch()
    with pytest.raises(PreconditionFailed, match="no export wrote"):
        exported(db, tmp_path / "folder", "t", "WITH (OVERWRITE = true)")
    (tmp_path / "link").symlink_to("folder")
    with pytest.raises(PreconditionFailed, match="is a link"):
        exported(db, tmp_path / "link", "t", "WITH (OVERWRITE = true)")
    with pytest.raises(PreconditionFailed, match="is a folder"):
        (tmp_path / "x.csv").mkdir()
        exported(db, tmp_path / "x.csv", "t")
    with pytest.raises(InvalidArgument, match="inside the warehouse"):
        exported(db, Path(db._runtime.files.own.location) / "x.csv", "t")


def test_rows_are_bytes_as_soon_as_they_come(db: Database) -> None:
    for format in FORMATS:
        pieces = list(encode_rows(format, db.sql("SELECT * FROM t").to_reader(1)))
        assert len(pieces) > 1
        if format == "parquet":
            assert pq.read_table(pa.BufferReader(b"".join(pieces))).num_rows == 2


@pytest.mark.parametrize("format", FORMATS[:2])
def test_memory_does_not_depend_on_the_size_of_a_batch(format: Format) -> None:
    """Bytes become texts of four or five times their size, a part of a batch at a time."""
    values = pa.array([bytes(range(256)) * 64] * 1024, pa.binary())
    table = pa.table({"k": range(1024), "b": values})
    assert table.nbytes > 16 << 20
    biggest = total = 0
    tracemalloc.start()
    for piece in encode_rows(format, table.to_reader()):
        biggest, total = max(biggest, len(piece)), total + len(piece)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total > 64 << 20
    assert biggest < 8 << 20
    assert peak < table.nbytes


def test_nested_values_are_json() -> None:
    table = pa.table(
        {
            "m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
            "l": [[{"x": b"a", "f": float("nan")}], []],
            "d": pa.array([Decimal(2**64), None], pa.decimal128(20, 0)),
        }
    )
    (line, none), (head, first, last) = (
        b"".join(encode_rows(format, table.to_reader())).decode().splitlines() for format in FORMATS[1::-1]
    )
    assert json.loads(line) == {"m": {"a": 1}, "l": [{"x": "\\x61", "f": "nan"}], "d": 2**64}
    assert json.loads(none) == {"m": None, "l": [], "d": None}
    assert (head, last) == ("m,l,d", ',"[]",')
    assert first.startswith('"{""a"": 1}","[{""x"": ""')


def test_a_folder_gets_files_of_some_size(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.storage.outgoing.targets.FILE_BYTES", 1)
    monkeypatch.setattr("strandline.api.export.BATCH_ROWS", 1)
    result = db.sql(f"EXPORT t TO '{tmp_path / 'parts'}' WITH (FORMAT = 'csv')")
    assert result.rows() == [(str(tmp_path / "parts"), "csv", 2, 2)]
    assert sorted(file.name for file in (tmp_path / "parts").iterdir()) == [
        "part-00000.csv",
        "part-00001.csv",
    ]


def test_a_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The export fails after some rows were written, because others cannot be read."""
    monkeypatch.setattr("strandline.storage.arrow.partitions.PIECE_BYTES", 1000)
    with open_at(tmp_path / "warehouse") as db:
        db.sql("CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k))")
        for first in (0, 3000):
            db.table("t").upsert([{"k": k, "v": str(k)} for k in range(first, first + 3000)])
        Path(str(db.files("/t").parts[1].file)).write_bytes(b"damaged")
    with open_at(tmp_path / "warehouse", settings={"scan_rows": 0}) as db:
        reader = db.table("t").scan().to_reader()
        came = 0
        with pytest.raises(Corrupted):
            for batch in reader:
                came += batch.num_rows
        assert came == 3000
        (tmp_path / "out").mkdir()
        for name, format in (
            ("t.parquet", ""),
            ("t.csv.gz", ""),
            ("folder", ""),
            ("delta", "delta"),
            ("iceberg", "iceberg"),
        ):
            with pytest.raises(Corrupted):
                exported(db, tmp_path / "out" / name, "t", f"WITH (FORMAT = '{format}')" if format else "")
            assert list((tmp_path / "out").iterdir()) == [], name


def test_what_a_failed_export_would_have_replaced_is_still_there(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.storage.arrow.partitions.PIECE_BYTES", 1000)
    monkeypatch.setattr("strandline.storage.outgoing.targets.FILE_BYTES", 1)
    settings = {"storage_options": s3.settings().storage_options, "scan_rows": 0}
    bucket = s3.new_bucket()
    places = [str(tmp_path / "out"), f"s3://{bucket}/out"]
    names = ["t.csv", "folder"]
    with open_at(tmp_path / "warehouse", settings=settings) as db:
        db.sql("CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'one')")
        for place, name in itertools.product(places, names):
            db.sql(f"EXPORT t TO '{place}/{name}'")
        there = [sorted(p.name for p in (tmp_path / "out").rglob("*")), s3.objects(bucket)]
        for first in (0, 3000):
            db.table("t").upsert([{"k": k, "v": str(k)} for k in range(first, first + 3000)])
        Path(str(db.files("/t").parts[-1].file)).write_bytes(b"damaged")
    with open_at(tmp_path / "warehouse", settings=settings) as db:
        for number, (place, name) in enumerate(itertools.product(places, names)):
            with pytest.raises(Corrupted):
                db.sql(f"EXPORT t TO '{place}/{name}' WITH (OVERWRITE = 'true')")
            db.sql(f"CREATE TABLE u{number} (k Int64, v Utf8, PRIMARY KEY (k))")
            load(db, f"u{number}", External(places=(f"{place}/{name}",), settings=db._runtime.settings))
            assert db.sql(f"SELECT * FROM u{number}").rows() == [(1, "one")]
        assert there == [sorted(p.name for p in (tmp_path / "out").rglob("*")), s3.objects(bucket)]


def test_nobody_knows_whether_an_export_has_taken_place_and_its_rows_are_there(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store executes the request, but the answer is lost."""

    class Silent(ObjectFiles):
        def _put_over(self, name: str, data: bytes) -> None:
            super()._put_over(name, data)
            raise Unavailable("no answer")

    bucket = s3.new_bucket()
    with open_at(tmp_path / "warehouse", settings={"storage_options": s3.settings().storage_options}) as db:
        db.sql("CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'one')")
        url, settings = f"s3://{bucket}/folder", db._runtime.settings
        db.sql(f"EXPORT t TO '{url}'")
        db.sql("UPSERT INTO t (k, v) VALUES (2, 'two')")
        with monkeypatch.context() as patch:
            there = Silent(f"s3://{bucket}", settings)
            patch.setattr("strandline.storage.outgoing.targets.place_of", lambda *_: (there, "folder"))
            with pytest.raises(Unavailable):
                db.sql(f"EXPORT t TO '{url}' WITH (OVERWRITE = 'true')")
        load(db, "u", External(places=(url,), settings=settings), wanted=NewTable(key=["k"]))
        assert db.sql("SELECT * FROM u").rows() == [(1, "one"), (2, "two")]
        db.sql(f"EXPORT t TO '{url}' WITH (OVERWRITE = 'true')")
        assert len(s3.objects(bucket)) == 2, "what the other two have left is gone"


def test_files_that_the_manifest_of_an_export_does_not_name_are_not_loaded(s3: S3, tmp_path: Path) -> None:
    """A crash while a folder of objects is replaced leaves the files of both exports."""
    bucket = s3.new_bucket()
    with open_at(tmp_path / "warehouse", settings={"storage_options": s3.settings().storage_options}) as db:
        db.sql("CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'one')")
        url = f"s3://{bucket}/folder"
        db.sql(f"EXPORT t TO '{url}' WITH (FORMAT = 'csv')")
        s3.client.put_object(Bucket=bucket, Key="folder/part-0123abcd-00000.csv", Body=b'k,v\n2,"two"\n')
        done = load(
            db, "u", External(places=(url,), settings=db._runtime.settings), wanted=NewTable(key=["k"])
        )
        assert (done.files, db.sql("SELECT * FROM u").rows()) == (1, [(1, "one")])
        db.sql("UPSERT INTO t (k, v) VALUES (3, 'three')")
        db.sql(f"EXPORT t TO '{url}' WITH (FORMAT = 'csv', OVERWRITE = 'true')")
        assert load(db, "u", External(places=(url,), settings=db._runtime.settings)).files == 1
        assert db.sql("SELECT k FROM u").rows() == [(1,), (3,)]
        assert len(s3.objects(bucket)) == 2


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("EXPORT t", SyntaxFault),
        ("EXPORT () TO 'x'", SyntaxFault),
        ("EXPORT (SELECT 1 TO 'x'", SyntaxFault),
        ("EXPORT t AT 1 AT 2 TO 'x'", SyntaxFault),
        ("EXPORT t AT 'x' TO 'x'", SyntaxFault),
        ("EXPORT t TO 'x' WITH (FORMAT = 'xml')", InvalidArgument),
        ("EXPORT t TO 'x' WITH (COLOUR = 'red')", InvalidArgument),
        ("EXPORT t TO 'x' WITH (OVERWRITE = 'perhaps')", InvalidArgument),
        ("EXPORT t TO 'ftp://x/y.csv'", InvalidArgument),
        ("EXPORT t TO 's3://bucket'", InvalidArgument),
        ("EXPORT t TO ''", InvalidArgument),
        ("EXPORT t TO 'rows.xml'", InvalidArgument),
        ("EXPORT t TO 'rows.tsv.gz'", InvalidArgument),
        ("EXPLAIN EXPORT t TO 'rows.xml'", InvalidArgument),
    ],
)
def test_what_is_no_export_is_refused(db: Database, text: str, error: type[StrandlineError]) -> None:
    with pytest.raises(error):
        db.sql(text)


def test_objects_are_exported_and_loaded_by_url(s3: S3, tmp_path: Path) -> None:
    url = f"s3://{s3.new_bucket()}/some"
    options = s3.settings().storage_options
    with open_at(tmp_path / "warehouse", settings={"storage_options": options}) as db:
        db.sql(
            "CREATE TABLE t (k Int64, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'one'), (2, NULL)"
        )
        for name in ("t.csv", "t.parquet", "folder"):
            db.sql(f"EXPORT t TO '{url}/{name}'")
            with pytest.raises(AlreadyExists):
                db.sql(f"EXPORT t TO '{url}/{name}'")
            db.sql(f"EXPORT t TO '{url}/{name}' WITH (OVERWRITE = 'true')")
        for number, place in enumerate((f"{url}/t.csv", f"{url}/*.csv", f"{url}/t.parquet", f"{url}/folder")):
            db.sql(f"CREATE TABLE u{number} (k Int64, v Utf8, PRIMARY KEY (k))")
            done = load(db, f"u{number}", External(places=(place,), settings=db._runtime.settings))
            assert (done.files, db.describe(f"u{number}")["digest"]) == (1, db.describe("t")["digest"])
        with pytest.raises(StrandlineError, match=r"there is no file s3://.*/nope.csv") as found:
            load(db, "t", External(places=(f"{url}/nope.csv",), settings=db._runtime.settings))
        assert "restore" not in str(found.value)
