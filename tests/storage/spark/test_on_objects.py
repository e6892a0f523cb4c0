"""A warehouse on an S3 server with bulk work on Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline.errors import StrandlineError, Unavailable
from strandline.storage.spark.failures import translate
from tests.processes import environment
from tests.s3 import S3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAVEN = Path(os.environ.get("STRANDLINE_MAVEN", "not-given"))
"""Folder with the jars (``make s3``)."""
JARS = [
    MAVEN / "org/apache/hadoop/hadoop-aws/3.4.2/hadoop-aws-3.4.2.jar",
    MAVEN / "software/amazon/awssdk/bundle/2.29.52/bundle-2.29.52.jar",
]
BULK: dict[str, Any] = {"bulk_rows": 10, "scan_rows": 10, "inline_rows": 0}

SCRIPT = """
import json, sys
import pyarrow as pa
import strandline
from strandline import Settings
from strandline.errors import StrandlineError

url, catalog, options, jars = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
settings = Settings(
    storage_options=options, bulk_rows=10, scan_rows=10, inline_rows=0, history_seconds=0.0, grace_seconds=0.0,
    spark={"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.jars": jars},
)

def rows(query):
    return [list(row) for row in db.sql(query).rows()]

def sound():
    assert db.check("/t").problems == []

with strandline.connect(url, catalog=catalog, settings=settings) as db:
    db.sql("CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int32, PRIMARY KEY (k),"
           " INDEX by_v GLOBAL SYNC ON (v) COVER (n)) WITH (PARTITION_AT_KEYS = (200))")
    ks = list(range(1000))
    db.table("t").upsert(pa.table({"k": ks, "v": [f"v{k % 7}" for k in ks], "n": pa.array(ks, pa.int32())}))
    db.table("t").upsert(pa.table({"k": list(range(500, 1500)), "v": ["new"] * 1000}))
    assert rows("SELECT count(*), sum(n) FROM t") == [[1500, 499500]]
    assert rows("SELECT count(*) FROM t VIEW by_v WHERE v = 'new'") == [[1000]]

    before = set(db._runtime.files.names("data"))
    try:
        db.table("t").insert(pa.table({"k": list(range(1400, 1600)), "v": ["x"] * 200}))
        raise AssertionError("keys that are there were inserted")
    except StrandlineError as error:
        assert error.code == "PRECONDITION_FAILED", error
    assert set(db._runtime.files.names("data")) == before

    db.sql("CREATE BACKUP COLLECTION c (TABLE t)"
           " WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')")
    db.sql("BACKUP c")
    db.sql("DELETE FROM t WHERE k < 100")
    db.sql("BACKUP c INCREMENTAL")
    assert db.verify("c") == []
    sound()
    digest = db.describe("/t")["digest"]
    for mode in ("reference", "copy"):
        db.sql("DROP TABLE t")
        db.sql(f"RESTORE c WITH (MODE = '{mode}', VERIFY = 'data')")
        assert db.describe("/t")["digest"] == digest
    db.sql("ALTER TABLE t ADD INDEX by_n GLOBAL ON (n)")
    assert rows("SELECT k FROM t VIEW by_n WHERE n = 321") == [[321]]
    assert db.compact("/t")
    sound()
    db.sql("DROP BACKUP COLLECTION c")
    db.maintain()
    sound()
    assert db.describe("/t")["digest"] == digest
    print("all of it")
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(
    not all(jar.exists() for jar in JARS),
    reason="Hadoop's classes for S3 are not there: make s3 fetches them",
)
def test_bulk_work_goes_through_spark(s3: S3, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    given = [
        f"s3://{bucket}/w",
        f"sqlite:///{tmp_path}/c.sqlite",
        json.dumps(s3.options),
        ",".join(map(str, JARS)),
    ]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *given], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.stdout.endswith("all of it\n"), done.stderr[-3000:]
    assert s3.secret not in done.stdout + done.stderr
    assert not [name for name in s3.objects(bucket) if "_temporary" in name]


def test_without_the_classes_it_says_which(spark: SparkSession, s3: S3, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    settings = s3.settings(**BULK)
    with strandline.connect(
        f"s3://{bucket}/w", catalog=f"sqlite:///{tmp_path}/c.sqlite", settings=settings, spark=spark
    ) as db:
        db.sql("CREATE TABLE t (k Int64 NOT NULL, PRIMARY KEY (k))")
        db.table("t").upsert([{"k": k} for k in range(5)])
        assert db.table("t").get(3) == {"k": 3}
        with pytest.raises(Unavailable, match="Spark has no classes for s3a://") as caught:
            db.table("t").upsert([{"k": k} for k in range(100)])
        assert "org.apache.hadoop:hadoop-aws:3.4.2,software.amazon.awssdk:bundle:2.29.52" in caught.value.hint
        assert db.check("/t").problems == []
        assert db.describe("/t")["rows"] == 5


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
            "s3a://",
        ),
        ('UnsupportedFileSystemException: No FileSystem for scheme "gs"', "gs://"),
        ("Class org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem not found", "abfss://"),
        ("java.nio.file.AccessDeniedException: s3a://b/x: getFileStatus", "denies Spark access"),
        (
            "SdkClientException: Unable to execute HTTP request: Connection refused",
            "cannot reach the object store",
        ),
    ],
)
def test_what_spark_says_of_object_stores(said: str, told: str) -> None:
    error: StrandlineError = translate(RuntimeError(said))
    assert error.code == "UNAVAILABLE"
    assert told in error.message
    assert error.hint
