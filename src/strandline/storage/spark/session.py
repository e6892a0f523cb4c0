"""Find or start the Spark session; change its settings while our plans run."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from strandline.errors import StrandlineError, Unavailable
from strandline.storage.partition_plan import PartitionPlan
from strandline.storage.spark.failures import spark_errors, translate
from strandline.storage.spark.jobs import attend, inheriting, run_own_python
from strandline.storage.spark.reachable import reach
from strandline.storage.spark.shipping import ship

__all__ = [
    "MEANING",
    "NEEDED",
    "get_session",
    "inheriting",
    "settings",
    "ship",
    "sized",
    "working",
]

MEANING: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings that define what values mean. Queries of callers are planned with them, too, in any session."""

NEEDED: Mapping[str, str] = {
    **MEANING,
    "spark.sql.caseSensitive": "true",
    # Settings that define what files contain.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    # Sorted output is split into many ranges first; adaptive execution then coalesces them to a good size.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "16m",
    # Larger batches for Python functions: hashing and encoding have a fixed cost per batch.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Send local rows above this size as Arrow batches. As part of the plan, each row would be a Java object
    # that is created and sent one by one. Smaller inputs are part of the plan: Spark can
    # optimise an empty input only if it is part of the plan.
    "spark.sql.execution.arrow.localRelationThreshold": "16384",
}
"""Settings with which our own plans run, in any session."""

_LOG4J = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%throwable{short.message}%n
"""
_RAISED_ANYWAY = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
    "org.apache.spark.sql.execution.datasources.v2",
    "org.apache.spark.util.Utils",
    "org.apache.spark.util.SparkErrorUtils",
)
"""Loggers of errors that the caller gets as an exception anyway. They print Java tracebacks."""

_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}

_lock = threading.Lock()


def get_session(
    existing: SparkSession | None = None, options: Mapping[str, str] | None = None
) -> SparkSession:
    """Return ``existing``, else the active session, else a new session.

    A new session connects to the Spark Connect server in ``spark.remote`` or ``SPARK_REMOTE``. If there is
    none, it connects to the master in ``spark.master`` or ``SPARK_MASTER``, or runs on all cores of this
    machine. Thread-safe; all threads share a new session.

    Args:
        existing: a session of the caller. None: find or start one.
        options: Spark settings for a new session.
    """
    if existing is not None:
        return existing
    with _lock:
        active = SparkSession.getActiveSession() or _of_another_thread()
        return active if active is not None else _start(dict(options or {}))


def _of_another_thread() -> SparkSession | None:
    """Return the session that another thread of this process has started; None if there is none."""
    found = getattr(SparkSession, "_instantiatedSession", None)
    return found if found is not None and getattr(found._sc, "_jsc", None) is not None else None


def _start(options: dict[str, str]) -> SparkSession:
    remote = options.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    _hush_pyspark()
    builder = SparkSession.builder.appName(options.pop("spark.app.name", "strandline"))
    if remote:
        if remote.startswith("sc://"):
            reach(remote, 15002, "the Spark Connect server")
        try:
            if not remote.startswith("sc://"):
                with tempfile.TemporaryDirectory(prefix="strandline-spark-") as folder:
                    own = {**options, "spark.master": remote, "spark.api.mode": "connect"}
                    _launch(own, Path(folder, "spark.properties"), None)
            return _configure(builder, options).getOrCreate()
        except (PySparkException, ImportError) as error:
            raise _no_session(f"of the Spark Connect server {remote}", translate(error).message) from None
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    if shutil.which(java) is None:
        raise Unavailable(
            "Spark needs Java 17 or later, and there is none on this machine",
            "Install it (apt install openjdk-17-jre-headless, brew install openjdk@17) and set JAVA_HOME "
            "to its folder, "
            "or name a Spark Connect server in SPARK_REMOTE.",
        )
    if _is_here(options):
        # Only for executors on this machine: other machines may not have this path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _master(options).startswith("spark://"):
        reach(_master(options), 7077, "the Spark master")
    # Redirect the output of the JVM: the JVM prints a warning before any setting can suppress it. If the JVM
    # cannot start, only its output has the reason.
    with (
        tempfile.TemporaryDirectory(prefix="strandline-spark-") as folder,
        tempfile.TemporaryFile() as said,
    ):
        log4j = Path(folder, "log4j2.properties")
        log4j.write_text(_LOG4J + "".join(_logger(i, name) for i, name in enumerate(_RAISED_ANYWAY)), "utf-8")
        java_options = (
            f"-Dlog4j2.configurationFile={log4j.as_uri()} {options.pop('spark.driver.extraJavaOptions', '')}"
        )
        wanted = _defaults(options) | options | {"spark.driver.extraJavaOptions": java_options.strip()}
        try:
            _launch(wanted, Path(folder, "spark.properties"), said)
            return _configure(builder, wanted).getOrCreate()
        except Exception as error:
            said.seek(0)
            lines = [
                line.strip()
                for line in said.read().decode("utf-8", "replace").splitlines()
                if "WARN" not in line
            ]
            raise _no_session(
                "on this machine", next(filter(None, lines), None) or translate(error).message
            ) from None


def _launch(options: Mapping[str, str], properties: Path, said: IO[bytes] | None) -> None:
    """Start the JVM of this process unless it runs already.

    PySpark would pass the options on the JVM's command line, where every user of the machine sees them; but
    they may contain secrets. PySpark would also print the JVM's errors on the stderr of this process.

    Args:
        options: Spark settings of the JVM.
        properties: path of a new file, which passes the options to the JVM.
        said: file for the stderr of the JVM. None: it uses the stderr of this process.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    with open(
        os.open(properties, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.writelines(f"{_escape(key)}={_escape(value)}\n" for key, value in _of_jvm(options).items())
    # --load-spark-defaults: the defaults of the Spark installation still apply.
    own = f"--properties-file {shlex.quote(str(properties))} --load-spark-defaults"
    given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    with _environment({"PYSPARK_SUBMIT_ARGS": f"{own} {given}", "SPARK_REMOTE": None}):
        gateway = launch_gateway(None, {"stderr": said})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway, conf=SparkConf(loadDefaults=False))


def _of_jvm(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a session's JVM, with the plugin for a local Spark Connect server if needed."""
    own = {key: value for key, value in options.items() if key not in ("spark.remote", "spark.api.mode")}
    if options.get("spark.api.mode") == "connect":
        own.setdefault("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
    return own


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set or unset environment variables while the block runs."""
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set_environment(changes)
        yield
    finally:
        _set_environment(before)


def _set_environment(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _escape(text: str) -> str:
    """Escape a name or a value for a file of Java properties."""
    return re.sub(r"[\\:=#! \t\n\r\f]", lambda found: _ESCAPES.get(found[0], f"\\{found[0]}"), text)


def _configure(builder: SparkSession.Builder, options: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in options.items():
        builder = builder.config(key, value)
    return builder


def _no_session(where: str, why: str) -> StrandlineError:
    return Unavailable(
        f"cannot start a Spark session {where}: {why.rstrip('.')}",
        "Check JAVA_HOME (Java 17 or later), SPARK_REMOTE and the Spark settings, then try again.",
    )


def _master(options: Mapping[str, str]) -> str:
    return options.get("spark.master") or os.environ.get("SPARK_MASTER") or "local[*]"


def _is_here(options: Mapping[str, str]) -> bool:
    """Return True if the executors of a new session run on this machine."""
    return _master(options).startswith("local")


def _defaults(options: Mapping[str, str]) -> dict[str, str]:
    cores = os.cpu_count() or 2
    # The machine's own name may not resolve on a laptop or in a container.
    here = (
        {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        if _is_here(options)
        else {}
    )
    return here | {
        "spark.master": _master(options),
        "spark.driver.memory": f"{_driver_gigabytes()}g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(min(64, max(8, 4 * cores))),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "strandline-spark-warehouse"),
    }


def _driver_gigabytes() -> int:
    """Return the memory of a local driver in GiB: a quarter of the machine's memory, from 1 to 8."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        memory = 8 << 30
    return int(min(8, max(1, memory / 4 / (1 << 30))))


def _logger(number: int, name: str) -> str:
    return f"logger.l{number}.name = {name}\nlogger.l{number}.level = off\n"


def _hush_pyspark() -> None:
    # PySpark logs every error that it raises, as JSON with a Java traceback.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        with suppress(ImportError):
            from pyspark.logger import PySparkLogger

            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    # PySpark 4.3 loads helpers of its own tests, which warn about pandas even if it is not used. Users that
    # create pandas frames still get the warning.
    warnings.filterwarnings(
        "ignore", "PySpark does not yet fully support pandas", module=r"pyspark\.testing\."
    )


# --- settings while we work -------------------------------------------------------------------------------


class _Lent:
    """A changed setting of a session: its previous value, and the values that threads need now."""

    def __init__(self, before: str | None) -> None:
        self.before = before
        self.needed: list[str] = []

    @property
    def value(self) -> str | None:
        """The value to set: the largest number that a thread needs.

        It is the previous value if no thread needs a value. The largest number is used, because adaptive
        execution can only join partitions. If the values are not numbers, all threads need the same value.
        """
        if not self.needed:
            return self.before
        return max(self.needed, key=int) if self.needed[0].isdecimal() else self.needed[0]


_lent: weakref.WeakKeyDictionary[SparkSession, dict[str, _Lent]] = weakref.WeakKeyDictionary()
"""The changed settings of each session, by name. A session is shared by all threads of the process."""


@contextmanager
def settings(session: SparkSession, needed: Mapping[str, str] = NEEDED) -> Iterator[None]:
    """Change settings of a session, which may be the user's own, and restore them after the block.

    Several threads may be in such blocks at the same time; the last thread restores a setting. Jobs that this
    thread starts in the block are tagged with its current work, so that cancelling the work cancels the jobs.
    """
    attend(session)
    run_own_python(session)
    with _lock:
        mine = _lent.setdefault(session, {})
        for key, value in needed.items():
            if key not in mine:
                mine[key] = _Lent(session.conf.get(key, None))
            before = mine[key].value
            mine[key].needed.append(value)
            _set(session, key, before, mine[key].value)
    try:
        yield
    finally:
        with _lock:
            for key, value in needed.items():
                before = mine[key].value
                mine[key].needed.remove(value)
                _set(session, key, before, mine[key].value)
                if not mine[key].needed:
                    del mine[key]


def _set(session: SparkSession, key: str, before: str | None, value: str | None) -> None:
    if value is None:
        session.conf.unset(key)
    elif value != before:
        session.conf.set(key, value)


@contextmanager
def sized(session: SparkSession, plan: PartitionPlan) -> Iterator[None]:
    """Set the number and the size of shuffle partitions from ``plan`` for the jobs in this block."""
    advisory = str(plan.partition_bytes)
    needed = {
        "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(plan.ranges),
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": advisory,
    }
    with settings(session, needed):
        yield


@contextmanager
def working(session: SparkSession) -> Iterator[None]:
    """Plan and run our own jobs in this block: it sets ``NEEDED`` and translates Spark's errors."""
    with spark_errors(), settings(session):
        yield
