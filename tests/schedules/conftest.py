"""The fixtures of the tests of schedules."""

from tests.tables.conftest import connect, db, spark_db

__all__ = ["connect", "db", "spark_db"]
