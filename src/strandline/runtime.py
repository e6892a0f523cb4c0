"""The shared objects of an open database: catalog, files, store, settings, clock and session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from strandline.background import Background
from strandline.catalog.connection import Catalog
from strandline.catalog.sessions import Session
from strandline.clock import Clock
from strandline.settings import Settings
from strandline.storage.file_router import FileRouter
from strandline.storage.files import Files
from strandline.storage.throttle import Throttles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.catalog.snapshots import Moments
    from strandline.metrics import Metrics
    from strandline.storage.store import Store

T = TypeVar("T")


class Runtime:
    """The objects of one database, shared by all of its threads.

    Objects that are slow to import are created on first use.
    """

    def __init__(
        self,
        catalog: Catalog,
        files: Files,
        settings: Settings,
        clock: Clock,
        spark: SparkSession | None = None,
    ) -> None:
        self.catalog = catalog
        self.files = FileRouter(files, settings)
        self.throttles = Throttles(clock)
        self.settings = settings
        self.limits = settings.limits
        self.clock = clock
        self.session = Session(catalog, settings.session_seconds, settings.grace_seconds)
        # The first publication creates the metrics. They replace this callback for later publications.
        catalog.on_publication = lambda *told: self.metrics.count_publication(*told)
        self.open_backup: Callable[[Runtime, str, str | None], Any]
        """Opens the tables of a backup for a query.

        Tables may not import backups, a layer above them. So ``Database``, which may import both, sets this
        function.
        """
        self.upkeep = Background("strandline-upkeep", settings.compaction_share)
        """Merges and compacts tables after commits."""
        self._maintained: set[int] = set()
        self._lock = threading.RLock()
        self._spark = spark

    @contextmanager
    def alone_with(self, table_id: int) -> Iterator[bool]:
        """Claim the maintenance of a table for this thread. Yield False if another thread has claimed it."""
        with self._lock:
            alone = table_id not in self._maintained
            self._maintained.add(table_id)
        try:
            yield alone
        finally:
            if alone:
                with self._lock:
                    self._maintained.discard(table_id)

    @cached_property
    def metrics(self) -> Metrics:
        """The metrics of this process. They are written to the catalog from time to time."""
        from strandline.catalog.metrics_buffer import Count
        from strandline.metrics import Metrics

        def make() -> Metrics:
            made = Metrics()
            self.catalog.on_publication = made.count_publication
            self.catalog.ledger.counted = lambda: {
                Count.of(name, labels): value for name, labels, value in made.samples()
            }
            return made

        return self._make_once("metrics", make)

    @cached_property
    def moments(self) -> Moments:
        """The snapshots through which statements read the catalog."""
        from strandline.catalog.cache import Loader, SchemeCache
        from strandline.catalog.snapshots import Moments

        def make() -> Moments:
            loader = Loader(
                SchemeCache(self.catalog, metrics=self.metrics),
                self.clock,
                retries=self.settings.schema_retries,
                retry_seconds=self.settings.schema_retry_seconds,
                metrics=self.metrics,
            )
            return Moments(self.catalog, loader, self.session)

        return self._make_once("moments", make)

    @cached_property
    def store(self) -> Store:
        """The store, which reads and writes rows. Created on first use, because it imports Arrow."""
        from strandline.storage.store import Store

        return self._make_once("store", lambda: Store(self.files, self.settings, self._spark))

    @property
    def spark(self) -> SparkSession:
        """The Spark session: the caller's own, or one that is started on first use."""
        return self.store.session

    def _make_once(self, name: str, make: Callable[[], T]) -> T:
        """Create an object that all threads share, once.

        Since Python 3.12 ``cached_property`` does not lock: two threads could create it at the same time.
        """
        with self._lock:
            if name not in self.__dict__:
                self.__dict__[name] = make()
            made: T = self.__dict__[name]
            return made
