"""What operations and statements work with: catalog, files, the store of rows, settings, clock and this
process's session."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from strandline.catalog.connection import Catalog
from strandline.catalog.sessions import Session
from strandline.clock import Clock
from strandline.settings import Settings
from strandline.storage.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.catalog.moment import Moments
    from strandline.metrics import Metrics
    from strandline.storage.store import Store


class Runtime:
    """Shared by all threads of a process that use one database. What takes time to load is made by the first
    use."""

    def __init__(
        self,
        catalog: Catalog,
        files: Files,
        settings: Settings,
        clock: Clock,
        spark: SparkSession | None = None,
    ) -> None:
        self.catalog = catalog
        self.files = files
        self.settings = settings
        self.clock = clock
        self.session = Session(catalog, settings.session_seconds, settings.grace_seconds)
        catalog.on_publication = lambda a: self.metrics.published(
            a.generation, a.step, a.operation_id, a.versions
        )
        self.open_backup: Callable[[Runtime, str, str | None], Any]
        """Where a query finds the tables of a backup. Backups stand above tables, so whoever knows both says
        it here."""
        self._process = os.getpid()
        self._maintained: set[int] = set()
        self._lock = threading.RLock()
        self._metrics: Metrics | None = None
        self._moments: Moments | None = None
        self._store: Store | None = None
        self._spark = spark

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that connected. All that is here is the other's, down to
        the files it writes."""
        return os.getpid() != self._process

    @contextmanager
    def alone_with(self, table_id: int) -> Iterator[bool]:
        """Whether no other thread of this process maintains the table; then none does while the block
        lasts."""
        with self._lock:
            alone = table_id not in self._maintained
            self._maintained.add(table_id)
        try:
            yield alone
        finally:
            if alone:
                with self._lock:
                    self._maintained.discard(table_id)

    @property
    def metrics(self) -> Metrics:
        """What this process counts."""
        with self._lock:
            if self._metrics is None:
                from strandline.metrics import Metrics

                self._metrics = Metrics()
            return self._metrics

    @property
    def moments(self) -> Moments:
        """What statements read of the catalog."""
        with self._lock:
            if self._moments is None:
                from strandline.catalog.cache import SchemeCache
                from strandline.catalog.moment import Moments
                from strandline.catalog.planner import Loader

                loader = Loader(
                    SchemeCache(self.catalog, metrics=self.metrics),
                    self.clock,
                    retries=self.settings.schema_retries,
                    retry_seconds=self.settings.schema_retry_seconds,
                    metrics=self.metrics,
                )
                self._moments = Moments(self.catalog, loader, self.session)
            return self._moments

    @property
    def store(self) -> Store:
        """The rows of all tables. Made by the first who needs rows: it loads Arrow, which metadata does
        without."""
        with self._lock:
            if self._store is None:
                from strandline.storage.store import Store

                self._store = Store(self.files, self.settings, self._spark)
            return self._store

    @property
    def spark(self) -> SparkSession:
        """The Spark session: the caller's own, or one that is started."""
        return self.store.spark
