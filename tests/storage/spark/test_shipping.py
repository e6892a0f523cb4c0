"""Executors get the code of this process, wherever it was imported from."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from strandline.storage.spark import shipping
from strandline.version import VERSION
from tests import processes

SOURCE = processes.SOURCE / "strandline"


def test_every_module_is_in_the_archive_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "shipped.zip"
    path.write_bytes(shipping._zip_package())
    with zipfile.ZipFile(path) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    there = {f"strandline/{file.relative_to(SOURCE)}": file.read_bytes() for file in SOURCE.rglob("*.py")}
    assert found == there


IN_AN_ARCHIVE = """
import sys
sys.path.insert(0, sys.argv[1])
import strandline
assert strandline.__file__.startswith(sys.argv[1])
from strandline.storage.spark import shipping
sys.stdout.write(shipping._zip_package().hex())
"""


@pytest.mark.slow
def test_a_package_that_is_in_an_archive_itself_is_shipped_as_well(tmp_path: Path) -> None:
    path = tmp_path / "installed.zip"
    path.write_bytes(shipping._zip_package())
    env = processes.environment()
    process = processes.start_python("-c", IN_AN_ARCHIVE, str(path), env=env, afresh=True)
    assert bytes.fromhex(processes.finish(process)) == path.read_bytes()


SHIPPED = """
import sys
from pyspark.sql import functions as F
from strandline.storage.spark import session, shipping

spark = session.get_session(None, {"spark.master": "local[1]", "spark.driver.memory": "1g"})
path = list(sys.path)
ships = [spark, spark, spark.newSession()]
for each in ships:
    session.ship(each)
assert sys.path == path, sys.path

def version(_):
    import strandline
    return strandline.__version__

def found(of):
    return of.range(1).select(F.udf(version, "string", useArrow=False)("id").alias("v")).collect()[0].v

print([found(each) for each in ships])
spark.stop()
again = session.get_session(None, {"spark.master": "local[1]"})
session.ship(again)
print(found(again))
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("jvm")
def test_executors_use_what_was_shipped_even_if_they_have_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of several sessions of a process, consecutive or concurrent, gets it once."""
    other = tmp_path / "other" / "strandline"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("__version__ = 'another'\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{other.parent}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    assert processes.run(SHIPPED) == f"{[VERSION] * 3}\n{VERSION}\n"


OWN_SESSION = """
import os, sys
import strandline
from strandline import Settings
from pyspark.sql import SparkSession

os.environ.pop("PYSPARK_PYTHON", None)
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
everything = Settings(bulk_rows=0, bulk_bytes=0, scan_rows=0, inline_rows=0)
with strandline.connect(sys.argv[1], spark=spark, settings=everything) as db:
    db.sql("CREATE TABLE t (k Int64 NOT NULL, PRIMARY KEY (k))")
    db.table("t").upsert(spark.range(10).withColumnRenamed("id", "k"))
    db.sql("CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster'); BACKUP c")
    db.sql("RESTORE c TABLE t AS copied WITH (MODE = 'copy')")
    print(db.describe("/copied")["rows"])
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("jvm")
def test_executors_of_a_local_session_run_the_python_of_this_process(tmp_path: Path) -> None:
    """Like a script whose environment is not activated: the python3 of the PATH lacks our modules."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    env = processes.environment()
    env["PATH"] = processes.joined(python.parent, env["PATH"])
    process = processes.start_python("-c", OWN_SESSION, str(tmp_path / "warehouse"), env=env)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert out == "10\n"
