"""Translate Spark's errors for users: one sentence and a hint, without a Java traceback."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from strandline.cancellation import check
from strandline.errors import (
    BY_CODE,
    PYTHON_HINT,
    Corrupted,
    Internal,
    InvalidArgument,
    PathNotFound,
    StrandlineError,
    SyntaxFault,
    Unavailable,
    Unsupported,
)
from strandline.storage.task_reports import HINT, blind_readers, is_whole

__all__ = ["CARRIED", "refuse", "spark_errors", "translate"]

CARRIED = "STRANDLINE {0.code}: {0.message} [hint] {0.hint} [end]"
"""Text of a Strandline error that is raised on an executor. ``translate`` parses it from the job's error."""
_RAISED = re.compile(r"STRANDLINE ([A-Z_]+): (.*?)(?: \[hint\] (.*?))? \[end\]", re.DOTALL)
_PRINTED = re.compile(r"strandline\.errors\.\w+: ([^\n]*) \[([A-Z_]+)\]\n  hint: ([^\n]*)")
"""Matches a Strandline error as Python prints it, inside the text of a Spark error."""
_CONDITION = re.compile(
    r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] (.*?)(?: SQLSTATE: (\w{5})|\n\tat |\Z)", re.DOTALL
)
_FILE = re.compile(r"(?:file |Path does not exist: )(\S+?)\.?(?:\s|$)")
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z])")

_UNREADABLE = ("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER", "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
_NOT_THERE = (
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "FAILED_READ_FILE.NO_HINT",
    "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER",
    "CANNOT_READ_FILE_FOOTER",
    "PATH_NOT_FOUND",
)
"""Error conditions for a file that is missing, shorter or different where Spark reads it."""
_MISSING_TABLE = ("TABLE_OR_VIEW_NOT_FOUND", "VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")
_UNSUPPORTED = ("UNSUPPORTED_", "NOT_SUPPORTED_", "NOT_IMPLEMENTED")
_JARS = {
    "s3a": "org.apache.hadoop:hadoop-aws:3.4.2,software.amazon.awssdk:bundle:2.29.52",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26",
    "abfss": "org.apache.hadoop:hadoop-azure:3.4.2",
}
"""Maven packages that Spark 4.1 needs for object stores, by URL scheme."""
_NO_CLASSES = {
    "s3a": re.compile(r'S3AFileSystem not found|No FileSystem for scheme "?s3a'),
    "gs": re.compile(r'GoogleHadoopFileSystem not found|No FileSystem for scheme "?gs'),
    "abfss": re.compile(r'AzureBlobFileSystem not found|No FileSystem for scheme "?abfss'),
}
_NO_MODULE = re.compile(r"No module named '(numpy|pyarrow|xxhash|obstore|cryptography|strandline)\b")
_OUTSIDE = (
    (
        "Cannot run program",
        "Spark cannot start the Python of its executors",
        PYTHON_HINT,
    ),
    (
        "PYTHON_VERSION_MISMATCH",
        "the Python of Spark's executors has another minor version than this one",
        PYTHON_HINT,
    ),
    (
        "AccessDeniedException",
        "the object store denies Spark access",
        "Give the session credentials that may list, read, write and delete objects there.",
    ),
    (
        "NoSuchBucket",
        "Spark finds no such bucket",
        "Give the session the endpoint and the region of the bucket.",
    ),
    (
        "Unable to execute HTTP request",
        "Spark cannot reach the object store",
        "Check the network and the endpoint of the session (fs.s3a.endpoint).",
    ),
    (
        "java.lang.OutOfMemoryError",
        "Spark ran out of memory",
        "Give it more with the Spark setting spark.driver.memory.",
    ),
    (
        "No space left on device",
        "Spark's disk is full",
        "Free some space for the warehouse and for temporary files.",
    ),
    (
        "Disk quota exceeded",
        "Spark's disk quota is used up",
        "Free some space for the warehouse and for temporary files.",
    ),
    (
        "Permission denied",
        "Spark may not read or write a file",
        "Give Spark's user the right to use the warehouse.",
    ),
    (
        "Mkdirs failed to create",
        "executors cannot write to the folder of the warehouse",
        HINT,
    ),
    (
        "stopped SparkContext",
        "the Spark session was stopped",
        "Connect again, with a session that is not stopped meanwhile.",
    ),
    (
        "Connection refused",
        "Spark cannot be reached",
        "Check that the Spark session or server is still running.",
    ),
    ("cancelled", "the Spark job was cancelled", "Start it again when you are ready."),
)


def refuse(kind: type[StrandlineError], hint: str, *message: Column | str) -> Column:
    """Return a column whose evaluation fails the job with an error of this kind.

    Args:
        message: parts of the message: texts, and columns with text.
    """
    parts = [F.lit(f"STRANDLINE {kind.code}: "), *(F.lit(m) if isinstance(m, str) else m for m in message)]
    return F.raise_error(F.concat(*parts, F.lit(f" [hint] {hint} [end]")))


@contextmanager
def spark_errors() -> Iterator[None]:
    """Translate Spark errors raised in the block. The original error stays as ``__context__``."""
    try:
        yield
    except StrandlineError:
        raise
    except Exception as error:
        if not _is_of_spark(error):
            raise
        check()  # If the work was cancelled, raise Interrupted: the job failed because of that.
        raise translate(error) from None


def _is_of_spark(error: Exception) -> bool:
    # A pure Spark Connect client has no Py4J, so its classes are recognised by name.
    return isinstance(error, PySparkException) or any(
        c.__module__.startswith("py4j.") for c in type(error).__mro__
    )


def translate(error: BaseException) -> StrandlineError:
    """Return the Strandline error that a user gets for a Spark error."""
    if isinstance(error, StrandlineError):
        return error
    text = str(error)
    if raised := _RAISED.search(text):
        return BY_CODE.get(raised[1], Internal)(raised[2], raised[3])
    if printed := _PRINTED.search(text):
        return BY_CODE.get(printed[2], Internal)(printed[1], printed[3])
    if scheme := next((name for name, sign in _NO_CLASSES.items() if sign.search(text)), None):
        return Unavailable(
            f"Spark has no classes for {scheme}:// in this session",
            f"Start it with spark.jars.packages={_JARS[scheme]} (in Settings.spark, or in your own session); "
            "the version is that of Spark's Hadoop.",
        )
    if lost := _NO_MODULE.search(text):
        return Unavailable(f"the Python of Spark's executors has no module {lost[1]}", PYTHON_HINT)
    for sign, what, hint in _OUTSIDE:
        if sign in text:
            return Unavailable(what, hint)
    found = _CONDITION.search(text)
    if found is None:
        return _without_condition(error, text)
    condition, state = found[1], found[3] or ""
    message, advice = _split(found[2])
    if condition.startswith(_UNREADABLE):
        file = _FILE.search(found[2])
        if file and condition.startswith(_NOT_THERE) and is_whole(path := _local(file[1])):
            return blind_readers(path)
        check = "If the query names this path, check it. " if condition.startswith("PATH_NOT_FOUND") else ""
        told = f"Spark cannot read the file {file[1]}" if file else message
        return Corrupted(told, f"{check}{Corrupted.default_hint}")
    if condition.startswith(_MISSING_TABLE):
        return PathNotFound(message)
    if isinstance(error, ParseException) or condition.startswith("PARSE_") or state == "42601":
        return SyntaxFault(message, advice)
    if condition.startswith(_UNSUPPORTED):
        return Unsupported(message, advice)
    if isinstance(error, AnalysisException) or state[:2] in ("22", "42", "21", "P0"):
        return InvalidArgument(message, advice)
    return Unavailable(f"Spark failed: {message}", advice)


def _local(path: str) -> str:
    """Convert a path or a file URL in a message of Spark to a local path."""
    plain = path.removeprefix("file:").rstrip(",;")
    plain = f"/{plain.lstrip('/')}"
    return plain if os.path.exists(plain) else unquote(plain)


def _split(text: str) -> tuple[str, str | None]:
    """Split a message of Spark into its first sentence and the rest, which is advice."""
    first, *rest = _SENTENCE.split(" ".join(text.split()))
    # Drop advice to disable a Spark check.
    advice = " ".join(sentence for sentence in rest if "spark.sql." not in sentence)
    if re.match(r"[A-Z][a-z]* ", first) and not first.startswith("Spark"):
        first = first[0].lower() + first[1:]
    return first.rstrip(".;"), advice or None


def _without_condition(error: BaseException, text: str) -> StrandlineError:
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    if type(error).__name__ == "PythonException":
        return InvalidArgument(f"a Python function in the query failed: {_last_of_python(lines)}")
    # Py4J puts the Java error on the second line, after "An error occurred while calling ...".
    line = lines[1] if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else lines[0]
    return Unavailable(
        f"Spark failed: {line.removeprefix(': ').rstrip('.')}",
        "Try again; if it persists, see Spark's own log.",
    )


def _last_of_python(lines: list[str]) -> str:
    python = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception)\b", line)]
    return (python[-1] if python else lines[0]).rstrip(".")
