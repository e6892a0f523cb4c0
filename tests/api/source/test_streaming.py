"""``readStream`` and ``writeStream`` apply each change exactly once, also after crashes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import DataSourceStreamReader as StreamReader
from pyspark.sql.pandas.types import from_arrow_schema

from strandline import Database
from strandline.errors import InvalidArgument, PathNotFound
from strandline.storage.arrow import partitions
from strandline.storage.feed import MODES
from tests.api.source.sparkless import rows as rows_of
from tests.api.source.sparkless import sent, source
from tests.catalogs import Death
from tests.effort import EVERY
from tests.tables.examples import ARROW, assert_sound, content, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "CREATE TABLE {} (k Int64 NOT NULL, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))"


@pytest.fixture
def db(connect: Callable[..., Database]) -> Database:
    """A table with a changefeed, and a table that follows it."""
    db = connect(settings=changed(ARROW, grace_seconds=0.0, history_seconds=0.0))
    db.sql(f"{TABLE.format('t')}; {TABLE.format('u')}")
    db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON')")
    return db


def change(db: Database, number: int) -> None:
    """Make one of many commits."""
    db.table("t").upsert([{"k": (number * 7 + i) % 50, "v": f"{number}-{i}"} for i in range(10)])
    if number % 3 == 0:
        db.sql(f"DELETE FROM t ON (k) VALUES ({number % 50})")


def read(db: Database, start: dict[str, int], end: dict[str, int], path: str = "/t/f") -> list[Any]:
    reader: Any = source(db, changefeed=path).streamReader(source(db, changefeed=path).schema())
    parts = [sent(part) for part in sent(reader).partitions(start, end)]
    return [row for part in parts for row in rows_of(reader.read(part))]


def reader_of(db: Database, path: str = "/t/f") -> Any:
    made = source(db, changefeed=path)
    return made.streamReader(made.schema())


@pytest.mark.parametrize("mode", MODES)
def test_the_records_are_those_of_the_changefeed(
    db: Database, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each mode, with any partitioning."""
    db.sql(f"ALTER TABLE t ADD CHANGEFEED g WITH (MODE = '{mode}', FORMAT = 'JSON')")
    for number in range(1, 8):
        change(db, number)
    start, end = reader_of(db, "/t/g").initialOffset(), reader_of(db, "/t/g").latestOffset()
    expected = sorted(str(tuple(record.values())) for record in db.stream("/t/g").records())
    assert sorted(map(str, read(db, start, end, "/t/g"))) == expected
    monkeypatch.setattr(partitions, "PARTITION_BYTES", 1)
    reader = reader_of(db, "/t/g")
    assert len(reader.partitions(start, end)) > 1
    assert sorted(map(str, read(db, start, end, "/t/g"))) == expected


def test_offsets_are_steps(db: Database) -> None:
    reader = reader_of(db)
    begin = reader.initialOffset()
    assert reader.latestOffset() == begin  # No changes.
    change(db, 1)
    db.sql("UPSERT INTO u (k) VALUES (1)")  # A change of another table.
    end = reader.latestOffset()
    assert begin["step"] < end["step"] == db.step - 1
    reader.commit(end)
    assert db.stream("/t/f").position == end["step"]
    reader.commit(begin)  # After a restart, Spark may commit an older offset.
    assert db.stream("/t/f").position == end["step"]


def test_what_a_batch_is_made_of_stays(connect: Callable[..., Database]) -> None:
    """Logs are merged, compacted and garbage-collected before a task reads the batch."""
    quick = changed(
        ARROW,
        grace_seconds=0.0,
        history_seconds=0.0,
        inline_bytes=0,
        merge_segments=3,
        compaction_share=1.0,
        inline_rows=20,
    )
    db = connect(settings=quick)
    db.sql(f"{TABLE.format('t')}; ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE')")
    for number in (1, 2):
        change(db, number)
    reader = reader_of(db)
    start, end = reader.initialOffset(), reader.latestOffset()
    parts = [sent(part) for part in reader.partitions(start, end)]
    expected = sorted(rows_of(b for part in parts for b in reader.read(part)))
    for number in (4, 5, 7, 8):
        change(db, number)
    db.compact("/t")
    db.maintain()
    db.collect()
    assert sorted(row for part in parts for row in rows_of(reader.read(part))) == expected
    assert sorted(read(db, start, end)) == expected


@dataclass
class Query:
    """A streaming query as Spark runs it: log the offsets of a batch, run it, log its completion.

    ``death``: number of such actions after which the process dies.
    """

    db: Database
    death: int
    options: dict[str, str] = field(default_factory=lambda: {"path": "/u", "txnId": "q"})
    offsets: list[tuple[dict[str, int], dict[str, int]]] = field(default_factory=list)
    done: list[int] = field(default_factory=list)

    def _may_die(self) -> None:
        self.death -= 1
        if self.death == 0:
            raise Death

    def run(self) -> None:
        """Start or restart the query, and run it until no changes are left."""
        reader = reader_of(self.db)
        while True:
            number = len(self.done)
            if number == len(self.offsets):
                start = self.offsets[-1][1] if self.offsets else reader.initialOffset()
                end = reader.latestOffset()
                if start == end:
                    return
                self.offsets.append((start, end))
                self._may_die()
                if self.done:
                    reader.commit(self.offsets[-2][1])
                    self._may_die()
            self._batch(reader, number)
            self.done.append(number)
            self._may_die()

    def _batch(self, reader: Any, number: int) -> None:
        start, end = self.offsets[number]
        batches = [b for part in reader.partitions(start, end) for b in reader.read(sent(part))]
        table = pa.Table.from_batches(batches).sort_by("step")
        # A sum by key: a batch applied twice would change it.
        counted = pa.table({"k": table["k"], "n": [number] * table.num_rows, "v": table["op"]})
        kinds = from_arrow_schema(counted.schema)
        writer: Any = source(self.db, **self.options).streamWriter(kinds, overwrite=False)
        messages = [sent(writer).write(iter(counted.to_batches()))]
        self._may_die()
        before = self.db.step
        source_of_commit: Any = source(self.db, **self.options).streamWriter(kinds, overwrite=False)
        source_of_commit.commit(messages, number)
        assert self.db.step <= before + 1
        self._may_die()


def test_every_batch_is_applied_once_whatever_dies_when(db: Database) -> None:
    """The follower has exactly one commit per batch, with crashes at every point."""
    for death in range(1, 16) if EVERY else (2, 3, 8):
        query = Query(db, death, {"path": "/u", "txnId": f"q{death}"})
        before = query_commits(db)
        for number in range(3):
            change(db, 10 * death + number)
            while True:
                try:
                    query.run()
                    break
                except Death:
                    continue
        assert query_commits(db) - before == len(query.offsets) == len(query.done) == 3
        last = {row[0]: row[1] for row in content(db, "/u")}
        assert last  # The follower has rows.
        db.stream("/t/f").commit(db.stream("/t/f").head)
    assert_sound(db, "/u")


def query_commits(db: Database) -> int:
    from strandline.catalog import commits, paths

    with db._runtime.catalog.read() as conn:
        return commits.commits_since(conn, paths.require(conn, "/u", "table").id, 0)


def test_the_query_itself_is_the_writer(db: Database) -> None:
    """The writer name is the id of the query, which tasks know."""
    given = pa.RecordBatch.from_pydict({"k": [1], "v": ["a"]})
    writer: Any = source(db, path="/u").streamWriter(from_arrow_schema(given.schema), overwrite=False)
    first = changed(writer.write(iter([given])), query="one")
    writer.commit([first], 0)
    again = changed(writer.write(iter([pa.RecordBatch.from_pydict({"k": [1], "v": ["b"]})])), query="one")
    writer.commit([again], 0)
    assert rows(db, "SELECT v FROM u") == [("a",)]
    other = changed(writer.write(iter([pa.RecordBatch.from_pydict({"k": [1], "v": ["c"]})])), query="two")
    writer.commit([other], 0)
    assert rows(db, "SELECT v FROM u") == [("c",)]


def test_a_batch_without_a_task_is_no_commit(db: Database) -> None:
    kinds = from_arrow_schema(pa.schema([("k", pa.int64())]))
    writer: Any = source(db, path="/u").streamWriter(kinds, overwrite=False)
    before = db.step
    writer.commit([], 0)
    assert db.step == before


def test_what_is_wrong_is_said(db: Database) -> None:
    with pytest.raises(PathNotFound, match="no stream /t/g"):
        reader_of(db, "/t/g")
    with pytest.raises(InvalidArgument, match="read from a changefeed"):
        source(db, path="/t").streamReader(source(db, path="/t").schema())
    with pytest.raises(InvalidArgument, match="Spark numbers the batches"):
        given = from_arrow_schema(pa.schema({"k": pa.int64()}))
        source(db, path="/t", txnId="a", txnVersion="1").streamWriter(given, overwrite=False)


def test_a_batch_ends_at_its_limit(db: Database) -> None:
    for number in range(1, 7):
        change(db, number)
    made = source(db, changefeed="/t/f", maxRowsPerBatch="15")
    reader: Any = made.streamReader(made.schema())
    start, ends, came = reader.initialOffset(), [], []
    begin = start
    while (end := reader.latestOffset()) != start:
        came += [row for part in reader.partitions(start, end) for row in rows_of(reader.read(sent(part)))]
        ends.append(end["step"])
        start = end
    assert len(ends) == 6
    assert sorted(came) == sorted(read(db, begin, reader_of(db).latestOffset()))
    again: Any = made.streamReader(made.schema())
    assert again.latestOffset()["step"] == ends[0], "the position did not move"
    again.partitions({"step": ends[3]}, {"step": ends[3]})  # Spark does this after a restart.
    assert again.latestOffset()["step"] == ends[4]
    whole = source(db, changefeed="/t/f", maxBytesPerBatch="1")
    smallest: Any = whole.streamReader(whole.schema())
    assert smallest.latestOffset()["step"] == ends[0], "a batch has at least one commit"


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5"])
def test_what_is_no_limit_is_refused(db: Database, limit: str) -> None:
    with pytest.raises(InvalidArgument, match="the option maxRowsPerBatch cannot be"):
        source(db, changefeed="/t/f", maxRowsPerBatch=limit).schema()
    with pytest.raises(InvalidArgument, match="maxRowsPerBatch does not say what is written"):
        given = from_arrow_schema(pa.schema({"k": pa.int64()}))
        source(db, path="/t", maxRowsPerBatch="1").writer(given, overwrite=False)


def test_spark_limits_batches_and_goes_on_after_a_restart(
    connect: Callable[..., Database], spark: SparkSession, tmp_path: Path
) -> None:
    """Spark tells the changefeed of a batch that it is done only when it plans the next one."""
    db = connect(spark=spark, settings=ARROW)
    db.sql("CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k))")
    db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON')")
    place = {"warehouse": db._runtime.files.location}

    def start(options: dict[str, str], **trigger: Any) -> Any:
        frame = spark.readStream.format("strandline").options(**place, **options).load()
        writer = frame.select("k", "v").writeStream.format("strandline").options(**place)
        return (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("key", "k")
            .option("txnId", "copy")
            .trigger(**trigger)
            .start("/copy")
        )

    for number in range(6):
        db.table("t").upsert([{"k": 10 * number + k, "v": str(number)} for k in range(10)])
    limited = {"changefeed": "/t/f", "maxRowsPerBatch": "10"}
    query = start(limited, processingTime="0 seconds")
    query.processAllAvailable()
    query.stop()
    assert content(db, "/copy") == content(db, "/t")
    batches = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert batches == [10] * 6
    assert db.stream("/t/f").position < db.stream("/t/f").head, "the last batch is not released yet"
    for number in range(2):
        db.table("t").upsert([{"k": 100 + number, "v": "later"}])
        query = start({"changefeed": "/t/f"}, availableNow=True)
        query.awaitTermination()
        (progress,) = [each for each in query.recentProgress if each["numInputRows"]]
        assert progress["numInputRows"] == 1
    db.table("t").upsert([{"k": 200, "v": "last"}])
    query = start(limited, processingTime="0 seconds")
    query.processAllAvailable()
    query.stop()
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [1]
    assert content(db, "/copy") == content(db, "/t")


def test_a_query_ends_at_its_end_step(db: Database) -> None:
    """In as many batches as its limits need. A batch that was planned before a crash keeps its offsets."""
    for number in range(1, 5):
        change(db, number)
    last = db.stream("/t/f").head
    options = {"changefeed": "/t/f", "endStep": str(last), "maxRowsPerBatch": "10"}
    change(db, 5)

    def planned() -> Any:
        made = source(db, **options)
        return made.streamReader(made.schema())

    reader = planned()
    start, came = reader.initialOffset(), []
    begin = start
    while (end := reader.latestOffset()) != start:
        came += [row for part in reader.partitions(start, end) for row in rows_of(reader.read(sent(part)))]
        start = end
    assert start == {"step": last}
    assert sorted(came) == sorted(read(db, begin, {"step": last}))
    reader.commit(start)
    change(db, 6)
    assert planned().latestOffset() == planned().initialOffset() == {"step": last}
    db.stream("/t/f").commit(db.stream("/t/f").head)
    assert planned().latestOffset() == planned().initialOffset(), "its end is behind the position"


def test_available_now_reads_what_was_there_and_nothing_later(db: Database) -> None:
    """PySpark 4.2 and later call these functions; a start is given, and a limit unless all is to be read."""
    for number in range(1, 5):
        change(db, number)
    made = source(db, changefeed="/t/f", maxRowsPerBatch="10")
    reader: Any = made.streamReader(made.schema())
    reader.prepareForTriggerAvailableNow()
    head = db.stream("/t/f").head
    change(db, 5)
    start, ends = reader.initialOffset(), []
    while (end := reader.latestOffset(start)) != start:
        ends.append(end["step"])
        start = end
    assert len(ends) == 5 and ends[-1] == head
    assert reader.reportLatestOffset() == {"step": db.stream("/t/f").head}
    again: Any = made.streamReader(made.schema())
    assert again.latestOffset({"step": ends[1]})["step"] == ends[2], "the start is Spark's, not the position"


@pytest.mark.parametrize("restarted", [False, True])
def test_spark_reads_all_that_was_there_when_it_ends_at_a_step(
    connect: Callable[..., Database], spark: SparkSession, tmp_path: Path, restarted: bool
) -> None:
    """The way to ``availableNow`` with every PySpark: also after a failure in the last batch."""
    db = connect(spark=spark, settings=ARROW)
    db.sql("CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k))")
    db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON')")
    place = {"warehouse": db._runtime.files.location}
    for number in range(4):
        db.table("t").upsert([{"k": 10 * number + k, "v": str(number)} for k in range(10)])
    head = db.stream("/t/f").head
    broken = tmp_path / "broken"
    if restarted:
        broken.touch()

    def run(**trigger: Any) -> Any:
        options = {"changefeed": "/t/f", "maxRowsPerBatch": "10", "endStep": str(head)}
        frame = spark.readStream.format("strandline").options(**place, **options).load()

        def write(rows: Any, number: int) -> None:
            if broken.exists() and number == 3:
                raise ValueError("the disk is gone")
            each = rows.select("k", "v").write.format("strandline").options(**place).mode("append")
            each.options(key="k", txnId="copy", txnVersion=str(number)).save("/copy")

        writer = frame.writeStream.foreachBatch(write).trigger(**trigger)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    query = run(processingTime="0 seconds")
    if restarted:
        with pytest.raises(StreamingQueryException, match="the disk is gone"):
            query.processAllAvailable()
        assert len(content(db, "/copy")) == 30
        broken.unlink()
        query = run(processingTime="0 seconds")
    expected = content(db, "/t")
    db.table("t").upsert([{"k": 100, "v": "later"}])
    query.processAllAvailable()
    done = json.loads(query.lastProgress.json)["sources"][0]["endOffset"]
    query.stop()
    assert content(db, "/copy") == expected
    lag = db.stream("/t/f").lag(after=done["step"])
    assert (done["step"], lag.steps, lag.rows) == (head, db.stream("/t/f").head - head, 1)


def test_spark_ends_when_all_that_is_available_is_read(
    connect: Callable[..., Database], spark: SparkSession, tmp_path: Path
) -> None:
    """With limits: PySpark 4.2 and later read all batches, earlier ones one batch for each start."""
    db = connect(spark=spark, settings=ARROW)
    db.sql("CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k))")
    db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON')")
    place = {"warehouse": db._runtime.files.location}
    for number in range(4):
        db.table("t").upsert([{"k": 10 * number + k, "v": str(number)} for k in range(10)])
    starts = 0
    is_whole = hasattr(StreamReader, "reportLatestOffset")
    while starts == 0 or len(content(db, "/copy")) < 40:
        frame = (
            spark.readStream.format("strandline")
            .options(**place, changefeed="/t/f", maxRowsPerBatch="10")
            .load()
        )
        writer = frame.select("k", "v").writeStream.format("strandline").options(**place, key="k")
        query = (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start("/copy")
        )
        query.awaitTermination()
        starts += 1
        assert len(content(db, "/copy")) == (40 if is_whole else 10 * starts)
    assert starts == (1 if is_whole else 4)
    assert content(db, "/copy") == content(db, "/t")


@pytest.mark.skipif(not EVERY, reason="a part of make exhaustive")
def test_spark_follows_it(connect: Callable[..., Database], spark: SparkSession, tmp_path: Path) -> None:
    """The query is stopped in the middle, and restarted with the same checkpoint."""
    db = connect(spark=spark, settings=ARROW)
    db.sql(f"{TABLE.format('t')}; {TABLE.format('u')}")
    db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON')")
    place = {"warehouse": db._runtime.files.location}
    for number in range(2):
        db.table("t").upsert([{"k": k, "v": f"{number}-{k}", "n": number} for k in range(5 + number)])
        frame = spark.readStream.format("strandline").options(**place).option("changefeed", "/t/f").load()
        query = (
            frame.where("op = 'U'")
            .select("k", "v", "n")
            .writeStream.format("strandline")
            .options(**place)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start("/u")
        )
        query.awaitTermination()
        assert content(db, "/u") == content(db, "/t")
    assert_sound(db, "/u")
    assert query_commits(db) == 2
