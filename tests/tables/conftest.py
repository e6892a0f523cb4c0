"""Fixtures that open databases in new folders, with and without Spark."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline import Database
from tests.catalogs import place_catalog
from tests.quick_files import QuickFiles
from tests.tables.examples import NoSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., Database]]:
    """Open databases in ``tmp_path / folder``, and close them at the end. Without a session, Spark fails."""
    opened: list[Database] = []
    numbers = itertools.count(1)

    def make(folder: str | None = None, **options: Any) -> Database:
        path = tmp_path / (folder or f"warehouse-{next(numbers)}")
        options.setdefault("files", QuickFiles(path))
        options.setdefault("spark", NoSpark())
        if "catalog" not in options:
            place_catalog(path / "catalog.sqlite")
        db = strandline.connect(path, **options)
        opened.append(db)
        return db

    yield make
    for db in opened:
        db.close()


@pytest.fixture
def db(connect: Callable[..., Database]) -> Database:
    """A database that fails if it needs Spark."""
    return connect()


@pytest.fixture
def spark_db(connect: Callable[..., Database], spark: SparkSession) -> Database:
    """A database that may use Spark."""
    return connect(spark=spark)
