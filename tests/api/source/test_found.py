"""Use of the format in a Spark session where the package is installed, but not registered."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import datasource

import strandline
from tests.processes import COMPILED, SOURCE, joined, run_python
from tests.speed import OPTIONS

TYPED = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
place = {"warehouse": sys.argv[1]}
frame = spark.read.format("strandline").options(**place).load("/t")
frame.where("k > 1").write.format("strandline").options(**place).mode("append").save("/u")
assert "strandline" not in sys.modules

import strandline
strandline.register(spark, sys.argv[1])
print(spark.read.format("strandline").load("/u").where("k = 3").collect())
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("jvm")
@pytest.mark.skipif(
    not hasattr(datasource, "Filter"), reason="PySpark 4.0 lets nobody register what it has found by itself"
)
def test_a_session_that_was_told_of_nothing_knows_the_format(tmp_path: Path) -> None:
    columns = "(k Int64 NOT NULL, v Utf8, PRIMARY KEY (k))"
    with strandline.connect(tmp_path / "warehouse") as db:
        db.sql(f"CREATE TABLE t {columns}; CREATE TABLE u {columns}")
        db.sql("UPSERT INTO t (k, v) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        around = {
            "PYTHONPATH": joined(SOURCE, COMPILED),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"--master local[1] --conf spark.ui.enabled=false --driver-java-options '{OPTIONS}' pyspark-shell",
        }
        run = run_python(
            "-c",
            TYPED,
            str(tmp_path / "warehouse"),
            env={**os.environ, **around},
            afresh=True,
            cwd=tmp_path,
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout == "[Row(k=3, v='c')]\n"
        assert db.sql("SELECT k, v FROM u").rows() == [(2, "b"), (3, "c")]
