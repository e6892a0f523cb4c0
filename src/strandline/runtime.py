"""What operations and statements work with: catalog, files, the store of rows, settings, clock and this
process's session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from strandline.catalog.connection import Catalog
from strandline.catalog.sessions import Session
from strandline.clock import Clock
from strandline.settings import Settings
from strandline.storage.elsewhere import Everywhere
from strandline.storage.files import Files
from strandline.storage.pace import Paces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.catalog.moment import Moments
    from strandline.metrics import Metrics
    from strandline.storage.store import Store

T = TypeVar("T")


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
        self.files = Everywhere(files, settings)
        self.paces = Paces(clock)
        self.settings = settings
        self.limits = settings.limits
        self.clock = clock
        self.session = Session(catalog, settings.session_seconds, settings.grace_seconds)
        # By the first, what counts is made, which is told of the others itself.
        catalog.on_publication = lambda *told: self.metrics.published(*told)
        self.open_backup: Callable[[Runtime, str, str | None], Any]
        """Where a query finds the tables of a backup. Backups stand above tables, so whoever knows both says
        it here."""
        self._maintained: set[int] = set()
        self._lock = threading.RLock()
        self._spark = spark

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

    @cached_property
    def metrics(self) -> Metrics:
        """What this process counts. The catalog hears of it by and by."""
        from strandline.catalog.ledger import Count
        from strandline.metrics import Metrics

        def make() -> Metrics:
            made = Metrics()
            self.catalog.on_publication = made.published
            self.catalog.ledger.counted = lambda: {
                Count.of(name, labels): value for name, labels, value in made.samples()
            }
            return made

        return self._made_once("metrics", make)

    @cached_property
    def moments(self) -> Moments:
        """What statements read of the catalog."""
        from strandline.catalog.cache import Loader, SchemeCache
        from strandline.catalog.moment import Moments

        def make() -> Moments:
            loader = Loader(
                SchemeCache(self.catalog, metrics=self.metrics),
                self.clock,
                retries=self.settings.schema_retries,
                retry_seconds=self.settings.schema_retry_seconds,
                metrics=self.metrics,
            )
            return Moments(self.catalog, loader, self.session)

        return self._made_once("moments", make)

    @cached_property
    def store(self) -> Store:
        """The rows of all tables. Made by the first who needs rows: it loads Arrow, which metadata does
        without."""
        from strandline.storage.store import Store

        return self._made_once("store", lambda: Store(self.files, self.settings, self._spark))

    @property
    def spark(self) -> SparkSession:
        """The Spark session: the caller's own, or one that is started."""
        return self.store.session

    def _made_once(self, name: str, make: Callable[[], T]) -> T:
        """What all threads share, also those that ask for it first at the same time: from Python 3.12 on
        ``cached_property`` does not make them wait for each other."""
        with self._lock:
            if name not in self.__dict__:
                self.__dict__[name] = make()
            made: T = self.__dict__[name]
            return made
