"""What operations and statements work with: catalog, files, settings, clock, this process's session, and Spark when it is needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from strandline.catalog.cache import SchemeCache
from strandline.catalog.engine import Catalog
from strandline.catalog.loader import Loader
from strandline.catalog.sessions import Session
from strandline.clock import Clock
from strandline.metrics import Metrics
from strandline.settings import Settings
from strandline.storage.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Context:
    """Shared by all threads of a process that use one database."""

    def __init__(self, catalog: Catalog, files: Files, settings: Settings, clock: Clock, spark: SparkSession | None = None) -> None:
        self.catalog = catalog
        self.files = files
        self.settings = settings
        self.clock = clock
        self.metrics = Metrics()
        catalog.on_publication = lambda a: self.metrics.published(a.generation, a.step, a.operation_id, a.versions)
        self.session = Session(catalog, settings.session_seconds)
        self.cache = SchemeCache(catalog, metrics=self.metrics)
        self.loader = Loader(
            self.cache,
            clock,
            retries=settings.schema_retries,
            retry_seconds=settings.schema_retry_seconds,
            metrics=self.metrics,
        )
        self._spark = spark
        self._lock = threading.Lock()

    @property
    def spark(self) -> SparkSession:
        """The Spark session: the caller's own, or one that is started by the first use."""
        with self._lock:
            if self._spark is None:
                from strandline.storage.spark.session import get_session

                self._spark = get_session(None, self.settings.spark)
            return self._spark
