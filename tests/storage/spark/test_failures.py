"""Every Spark error reaches the caller as one of ours: one sentence and a hint, without Java."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkValueError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.errors import (
    Conflict,
    Corrupted,
    InvalidArgument,
    PathNotFound,
    PreconditionFailed,
    StrandlineError,
    SyntaxFault,
    Unavailable,
)
from strandline.storage.spark.failures import refuse, spark_errors, translate


def error_of(run: Callable[[], object]) -> StrandlineError:
    with pytest.raises(StrandlineError) as caught, spark_errors():
        run()
    error = caught.value
    assert "\n" not in error.message
    assert "org.apache" not in error.message + error.hint
    assert "java" not in error.message + error.hint
    assert "SQLSTATE" not in error.message + error.hint
    assert error.__cause__ is None
    return error


@pytest.mark.parametrize(
    ("text", "kind", "message", "hint"),
    [
        ("SELEC 1", SyntaxFault, "syntax error at or near 'SELEC'", None),
        ("SELECT * FROM nowhere", PathNotFound, "the table or view `nowhere` cannot be found", None),
        ("SELECT idd FROM range(3)", InvalidArgument, "with name `idd` cannot be resolved", "Did you mean"),
        ("SELECT CAST(300 AS tinyint)", InvalidArgument, "due to an overflow", None),
        (
            "SELECT CAST('x' AS int)",
            InvalidArgument,
            "the value 'x' of the type \"STRING\" cannot be cast",
            None,
        ),
        ("SELECT 1 / (id - id) FROM range(3)", InvalidArgument, "division by zero", None),
        ("SELECT sum(id), id FROM range(3)", InvalidArgument, "", None),
        ("SELECT nofunction(id) FROM range(3)", InvalidArgument, "", None),
    ],
)
def test_queries(
    spark: SparkSession, text: str, kind: type[StrandlineError], message: str, hint: str | None
) -> None:
    error = error_of(lambda: spark.sql(text).collect())
    assert type(error) is kind
    assert message in error.message
    assert error.message[-1] not in ".;"
    assert not error.message[0].isupper()
    assert (hint or "") in error.hint
    assert "ansi" not in error.hint


def test_columns_of_a_dataframe(spark: SparkSession) -> None:
    assert isinstance(error_of(lambda: spark.range(1).select("nope").collect()), InvalidArgument)


@pytest.mark.parametrize("kind", [PreconditionFailed, InvalidArgument, Conflict])
def test_refusals_come_back_as_what_they_are(spark: SparkSession, kind: type[StrandlineError]) -> None:
    def refused(df: DataFrame) -> Column:
        return F.when(df["id"] > 2, refuse(kind, "Do it.", "no ", df["id"].cast("string"))).otherwise(
            df["id"]
        )

    error = error_of(lambda: (df := spark.range(4).repartition(2)).select(refused(df)).collect())
    assert (type(error), error.message, error.hint) == (kind, "no 3", "Do it.")


def test_files_that_are_missing_or_damaged(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1" + b"x" * 60 + b"PAR1")
    read = spark.read.schema("k bigint")
    assert "bad.parquet" in error_of(lambda: read.parquet(str(tmp_path / "bad.parquet")).collect()).message
    gone = error_of(lambda: read.parquet(str(tmp_path / "gone.parquet")).collect())
    assert isinstance(gone, Corrupted)
    assert gone.message.endswith("gone.parquet")


def test_python_functions_that_fail(spark: SparkSession) -> None:
    fail = F.udf(lambda n: 1 // n, "int")
    error = error_of(lambda: spark.range(1).select(fail("id")).collect())
    assert isinstance(error, InvalidArgument)
    assert "ZeroDivisionError" in error.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "An error occurred while calling o1.x.\n: java.lang.OutOfMemoryError: Java heap space",
            "Spark ran out of memory",
        ),
        ("java.io.IOException: No space left on device", "Spark's disk is full"),
        (
            "An error occurred while calling o1.x.\n: java.lang.IllegalStateException: what\n\tat a.b",
            "Spark failed: java.lang.IllegalStateException: what",
        ),
        ("", "Spark failed: Exception"),
    ],
)
def test_trouble_outside_the_query(text: str, message: str) -> None:
    error = translate(Exception(text))
    assert isinstance(error, Unavailable)
    assert error.message == message


def test_errors_that_are_not_sparks_pass() -> None:
    with pytest.raises(KeyError), spark_errors():
        raise KeyError
    mine = PathNotFound("x")
    assert translate(mine) is mine
    with pytest.raises(StrandlineError), spark_errors():
        raise PySparkValueError("odd")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "An exception was thrown from the Python worker.\nModuleNotFoundError: No module named 'pyarrow'",
            "the Python of Spark's executors has no module pyarrow",
        ),
        (
            'java.io.IOException: Cannot run program "python3": error=2, No such file or directory',
            "Spark cannot start the Python of its executors",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11",
            "the Python of Spark's executors has another minor version than this one",
        ),
    ],
)
def test_a_python_of_executors_that_does_not_fit(text: str, message: str) -> None:
    error = translate(RuntimeError(text))
    assert isinstance(error, Unavailable)
    assert error.message == message
    assert "PYSPARK_PYTHON" in error.hint


def test_a_missing_file_is_damage_only_if_it_is_missing_here_too(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "with space"
    place.mkdir()
    spark.range(1).coalesce(1).write.parquet(str(place / "rows"))
    (file,) = (place / "rows").glob("*.parquet")
    frame = spark.read.parquet(str(place / "rows"))
    away = file.rename(tmp_path / "away")
    with pytest.raises(Exception, match="FILE_NOT_EXIST") as caught:
        frame.collect()
    assert isinstance(translate(caught.value), Corrupted)
    away.rename(file)
    unseen = translate(caught.value)
    assert isinstance(unseen, Unavailable)
    assert unseen.message.startswith("executors do not see the file ")
