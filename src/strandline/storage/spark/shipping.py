"""Ship this package's code to executors, which may lack it or have another version.

Executors must have the package's dependencies.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING

import xxhash
from pyspark.sql import SparkSession

from strandline.storage.spark.failures import spark_errors
from strandline.storage.spark.jobs import run_own_python

if TYPE_CHECKING:
    if sys.version_info >= (3, 11):
        from importlib.resources.abc import Traversable
    else:
        from importlib.abc import Traversable

__all__ = ["ship"]

PACKAGE = "strandline"

_lock = threading.Lock()
_shipped: weakref.WeakSet[SparkSession] = weakref.WeakSet()
_archive: str | None = None
"""Path of this process's archive of the package. It is kept, because executors that start later fetch it."""


def ship(spark: SparkSession) -> None:
    """Make the executors of a session use this process's version of the code.

    Must be called before a Python function of this package becomes part of a plan. The code is sent once per
    session. Thread-safe.
    """
    run_own_python(spark)
    with _lock:
        if spark in _shipped:
            return
        path = _archive_package()
        before = list(sys.path)
        with spark_errors():
            spark.addArtifacts(path, pyfile=True)
        # In this process the package is still imported from its folder, because migrations need a folder.
        sys.path[:] = [entry for entry in sys.path if entry in before]
        _shipped.add(spark)


def _archive_package() -> str:
    global _archive
    if _archive is None:
        content = _zip_package()
        folder = tempfile.mkdtemp(prefix="strandline-ship-")
        atexit.register(_remove, folder, os.getpid())
        # The name has a hash of the content: a server accepts a name only once, and sessions with another
        # version of the package may share it.
        path = os.path.join(folder, f"{PACKAGE}-{xxhash.xxh3_128_hexdigest(content)}.zip")
        with open(path, "wb") as file:
            file.write(content)
        _archive = path
    return _archive


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # Only in the process that created it, not in a fork.
        shutil.rmtree(folder, ignore_errors=True)


def _zip_package() -> bytes:
    """Return the package's source as a zip archive. The same source gives the same bytes."""
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in _sources(PACKAGE, files(PACKAGE)):
            archive.writestr(zipfile.ZipInfo(name), source, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _sources(name: str, folder: Traversable) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _sources(f"{name}/{entry.name}", entry)
        elif entry.name.endswith(".py"):
            yield f"{name}/{entry.name}", entry.read_bytes()
