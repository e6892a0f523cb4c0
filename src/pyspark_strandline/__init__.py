"""How Spark finds ``format("strandline")`` in a session that nobody has told of it: it asks modules of its
Python whose names begin with ``pyspark_`` for a ``DefaultSource``. Nothing is loaded until it is used."""

from __future__ import annotations

from typing import Any

from pyspark.sql import datasource

if hasattr(datasource, "Filter"):  # Spark 4.0 would let nobody register what it has found by itself.

    class DefaultSource(datasource.DataSource):
        """Stands for the source, which takes its place when there are options."""

        def __new__(cls, options: Any) -> Any:
            from strandline.api.source.source import FoundSource

            return FoundSource(options)

        @classmethod
        def name(cls) -> str:
            return "strandline"
