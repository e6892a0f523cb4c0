"""The same databases as for the tests of tables, and the processes of Spark's played by this one."""

from collections.abc import Iterator

import pytest

from strandline.api.source import opened
from tests.tables.conftest import connect, db, spark_db

__all__ = ["connect", "db", "spark_db"]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Whatever the source has opened in this process is closed."""
    yield
    for place in list(opened._opened):
        opened._opened.pop(place).close()
