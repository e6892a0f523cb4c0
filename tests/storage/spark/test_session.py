"""The session: a user's own is left unchanged, ours starts silently."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.errors import Unavailable
from strandline.storage.partition_plan import plan_partitions
from strandline.storage.spark import session as module
from strandline.storage.spark.session import NEEDED, get_session, settings, sized

TIME_ZONE = "spark.sql.session.timeZone"
UNSET = "spark.sql.adaptive.coalescePartitions.minPartitionSize"


def test_the_callers_session_is_used(spark: SparkSession) -> None:
    assert get_session(spark) is spark
    assert get_session(None) is spark


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local", True),
        ("local[*]", True),
        ("spark://host:7077", False),
        ("yarn", False),
        ("k8s://host", False),
    ],
)
def test_executors_of_a_cluster_are_not_given_what_is_on_this_machine_only(
    monkeypatch: pytest.MonkeyPatch, master: str, here: bool
) -> None:
    """Its Python and its address."""
    monkeypatch.setenv("SPARK_MASTER", master)
    assert module._is_here({}) is here
    assert ("spark.driver.host" in module._defaults({})) is here
    assert module._is_here({"spark.master": "spark://other:7077"}) is False


def test_settings_are_put_back(spark: SparkSession) -> None:
    before = {key: spark.conf.get(key, None) for key in NEEDED}
    spark.conf.set(TIME_ZONE, "Asia/Kathmandu")
    try:
        with settings(spark), settings(spark):
            assert {key: spark.conf.get(key) for key in NEEDED} == NEEDED
        assert spark.conf.get(TIME_ZONE) == "Asia/Kathmandu"
    finally:
        spark.conf.set(TIME_ZONE, "UTC")
    assert {key: spark.conf.get(key, None) for key in NEEDED} == before


def test_settings_are_put_back_after_an_error(spark: SparkSession) -> None:
    before = spark.conf.get(UNSET, None)
    with pytest.raises(ZeroDivisionError), settings(spark):
        assert spark.conf.get(UNSET) == NEEDED[UNSET]
        raise ZeroDivisionError
    assert spark.conf.get(UNSET, None) == before


def test_of_several_sizes_the_largest_holds(spark: SparkSession) -> None:
    """Jobs of several threads share a session; adaptive execution can join partitions, but not split them."""
    name = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
    before = spark.conf.get(name, None)
    with sized(spark, plan_partitions(0, 1 << 27)):
        assert spark.conf.get(name) == "32"
        with sized(spark, plan_partitions(None, 1 << 27)):
            assert spark.conf.get(name) == "1000"
            with sized(spark, plan_partitions(0, 1 << 27)):
                assert spark.conf.get(name) == "1000"
        assert spark.conf.get(name) == "32"
    assert spark.conf.get(name, None) == before


def test_the_last_thread_to_leave_puts_settings_back(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.caseSensitive")
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with settings(spark):
            inside.set()
            leave.wait(300)

    thread = threading.Thread(target=other)
    with settings(spark):
        thread.start()
        assert inside.wait(300)
    assert spark.conf.get("spark.sql.caseSensitive") == "true"
    leave.set()
    thread.join()
    assert spark.conf.get("spark.sql.caseSensitive") == before


def test_without_java_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    with pytest.raises(Unavailable, match="Spark needs Java 17") as error:
        module._start({})
    assert "openjdk-17" in error.value.hint
    assert "SPARK_REMOTE" in error.value.hint


def run_python(text: str) -> subprocess.CompletedProcess[str]:
    source = Path(str(module.__file__)).parents[3]
    environment = os.environ | {"PYTHONPATH": str(source)}
    command = [sys.executable, "-c", text]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)


BROKEN = """
from strandline.errors import Unavailable
from strandline.storage.spark.session import get_session
try:
    get_session(None, {"spark.driver.memory": "lots"})
except Unavailable as error:
    print(error.message)
"""


@pytest.mark.slow
def test_a_session_that_cannot_start_says_why() -> None:
    run = run_python(BROKEN)
    assert run.stderr == ""
    assert run.stdout.startswith("cannot start a Spark session on this machine: ")
    assert "lots" in run.stdout


SECRETS = """
import glob, json, sys
from strandline.settings import Settings
from strandline.storage.location import files_at
from strandline.storage.spark.session import get_session

files = files_at("s3://bucket/w", Settings(storage_options={
    "access_key_id": "sesame-id", "secret_access_key": "sesame-key", "session_token": "sesame-token",
}))
odd = " a = b:c\\\\d\\té#! "
own = {"spark.ssl.keyPassword": "sesame-ssl", "spark.odd.value": odd}
session = get_session(None, {**files.spark_options(), **own, **json.loads(sys.argv[1])})

def children(batches):
    yield from batches  # So that Spark starts its Python processes as well.

assert session.range(3).mapInArrow(children, "id long").count() == 3
ours = []
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        with open(path) as file:
            ours.append(file.read().replace("\\0", " "))
    except OSError:
        continue
print(json.dumps({
    "java": sum("SparkSubmit" in line for line in ours),
    "leaks": [line for line in ours if "sesame" in line],
    "values": [session.conf.get(name, None) for name in ("spark.odd.value", "spark.ssl.keyPassword")],
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc here")
@pytest.mark.parametrize(
    "options", [{"spark.master": "local[1]"}, {"spark.remote": "local[1]"}], ids=["classic", "connect"]
)
def test_no_process_has_a_secret_in_its_arguments(options: dict[str, str], tmp_path: Path) -> None:
    source = Path(str(module.__file__)).parents[3]
    environment = os.environ | {"PYTHONPATH": str(source), "TMPDIR": str(tmp_path)}
    environment["PYSPARK_PYTHON"] = sys.executable
    run = subprocess.run(
        [sys.executable, "-", json.dumps(options)],
        input=SECRETS,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=environment,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["java"] >= 1
    assert found["leaks"] == []
    assert not list(tmp_path.glob("**/spark.properties")), "it is removed when it has been read"
    if "spark.master" in options:
        assert found["values"] == [" a = b:c\\d\té#! ", "sesame-ssl"], "as they were given"
