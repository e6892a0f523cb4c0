"""What makes a test run cheaper: a JVM for many small queries, and compiled statements of the catalog."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

_SPARK = find_spec("pyspark")
_PLACE = Path(_SPARK.origin).parent if _SPARK and _SPARK.origin else Path()

CLASSES = (
    Path(__file__).resolve().parent.parent
    / "build"
    / "jvm"
    / (hashlib.sha256(str(_PLACE).encode()).hexdigest()[:16] + ".jsa")
)
"""Spark's classes, loaded and looked at: to do so takes a JVM longer than all else that it does before its
first query. It depends on where Spark is; a JVM that finds anything else about it wrong does without it."""

BASIC = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m "
    "-XX:+UseSerialGC -XX:NewRatio=1 -XX:InitialRAMPercentage=50"
)
"""A test asks many different queries of few rows each, and no code runs for long enough to earn back what the
second compiler spends on it: more than half of the processor time. With one compiler there would be little
room for its code, which would then be thrown away and made again. Nor is there a large heap to be collected
beside the work: what a query leaves is garbage when the next one begins, and where all of the heap is taken
at once, half of it for what is new, it is seldom looked through."""

OPTIONS = (
    f"{BASIC} -XX:SharedArchiveFile={CLASSES} -Xshare:auto -Xlog:cds*=off" if CLASSES.exists() else BASIC
)

_SESSION = """
import sys
import pyarrow
from pyspark import SparkContext
from pyspark.sql import SparkSession, Window, functions as F

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.createDataFrame(pyarrow.table({"k": [1, 2, 3], "v": ["a", "b", None]}))
rows.write.parquet(sys.argv[1])
kept = spark.read.parquet(sys.argv[1]).where("k > 1")
last = F.row_number().over(Window.partitionBy("v").orderBy("k"))
kept.withColumn("n", last).join(rows.groupBy("v").count(), "v", "left").orderBy("k").toArrow()
kept.mapInArrow(lambda batches: batches, kept.schema).collect()
kept.createOrReplaceTempView("t")
spark.sql("SELECT max(k), sum(xxhash64(k)) FROM t UNION ALL SELECT 1, 2").collect()
spark.stop()
jvm = SparkContext._gateway.proc
jvm.stdin.close()  # Which ends it, and then it writes.
jvm.wait()
"""


def keep_classes() -> None:
    """Let a session tell which classes it needs, and keep them."""
    CLASSES.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CLASSES.parent) as folder:
        made = Path(folder, "classes.jsa")
        options = f"{BASIC} -XX:ArchiveClassesAtExit={made}"
        env = {**os.environ, "SPARK_SUBMIT_OPTS": options, "PYSPARK_PYTHON": sys.executable}
        code = [sys.executable, "-c", _SESSION, str(Path(folder, "rows"))]
        subprocess.run(code, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        made.rename(CLASSES)


def remember_names() -> None:
    """Let Py4J ask the JVM once what a name means. PySpark asks for the same few classes with every
    expression, and to find that a package is no class takes a look into each of Spark's archives."""
    from py4j.java_gateway import (  # type: ignore[import-untyped]
        JavaClass,
        JavaMember,
        JavaPackage,
        JVMView,
    )

    def remembering(look: Any) -> Any:
        def found(self: Any, name: str) -> Any:
            meaning = look(self, name)
            if isinstance(meaning, JavaClass | JavaMember | JavaPackage):
                self.__dict__[name] = meaning
            return meaning

        return found

    for kind in (JVMView, JavaPackage, JavaClass):
        kind.__getattr__ = remembering(kind.__getattr__)


def share_compiled() -> None:
    """Let all engines of this process share the texts that SQLAlchemy has made of statements. Each has a
    place of its own for them, so that otherwise every test makes the same hundred ones again.

    What is made for one database serves another one of the same kind, version and way to insert."""
    shared: Any = LRUCache(4000)

    def is_alike(self: DefaultDialect, other: object) -> bool:
        return type(self) is type(other) and _facts(self) == _facts(other)

    # Not by another __init__: SQLAlchemy looks at its parameters to know the options of create_engine.
    Engine._compiled_cache = property(lambda self: shared, lambda self, own: None)  # type: ignore[assignment]
    DefaultDialect.__eq__ = is_alike  # type: ignore[method-assign, assignment]
    DefaultDialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]


def _facts(dialect: Any) -> tuple[object, ...]:
    return (
        dialect.paramstyle,
        getattr(dialect, "server_version_info", None),  # Nobody knows it before there is a connection.
        dialect.use_insertmanyvalues,
        dialect.use_insertmanyvalues_wo_returning,
        dialect.insertmanyvalues_page_size,
    )


if __name__ == "__main__" and not CLASSES.exists():
    keep_classes()
