"""A simulated process: a real database that may lose the baton or die at many points.

The points are in its catalog, files, pauses and session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Dialect, event

from strandline.api.connector import CATALOG_FILE
from strandline.api.database import Database
from strandline.catalog.connection import Catalog
from strandline.catalog.engines import sqlite_url
from strandline.catalog.sessions import Session
from strandline.catalog.transactions import Writer
from strandline.runtime import Runtime
from strandline.settings import Settings
from strandline.storage.files import LocalFiles
from tests.catalogs import Death, forget
from tests.engines import Shuffled
from tests.simulation.data.baton import Baton, Runner
from tests.simulation.data.model import Effect, Violation

DIES = (0.0, 0.002, 0.005)
"""Probabilities of dying at a point; each process has one of them."""

_compiled: dict[Any, Any] = {}
_dialect: list[Dialect] = []
"""Compiled statements, and their dialect.

Each process has its own engine; compiling the statements for each would take longer than running them.
"""


class Process(Runner):
    """A simulated process.

    ``intent`` is the change that it is about to make; the witness applies it to the model when it is durable.
    """

    def __init__(
        self, name: str, folder: Path, baton: Baton, settings: Settings, on_commit: Callable[[Process], None]
    ) -> None:
        super().__init__(name)
        self.baton = baton
        self.intent: Intent | None = None
        self.facts: dict[str, Any] = {}
        """Facts about the current catalog transaction of this process, for the witness."""
        self.is_mortal = True
        self.path = ""
        """The table that it works on."""
        self.held_at = 0
        """The number of points until it is held; 0: it is not."""
        self.is_awaited = False
        """Whether it is held, and no other process has interfered yet."""
        self.sleeps = False
        """Whether it is held for longer than its lease."""
        self._dies = baton.random.choice(DIES)
        self._on_commit = on_commit
        self._writing = False
        self._renewing = False
        self._runtime: Runtime | None = None
        catalog = SimCatalog(self, folder)
        context = Runtime(catalog, SimFiles(self, folder), settings, SimClock(self))
        context.session = SimSession(catalog, settings.session_seconds, settings.grace_seconds)
        self._runtime = context
        self.session = context.session
        self.db = Database(context)
        self.db._operations.engine.transitions.scheduler = Shuffled(baton.random)

    def point(self, what: str) -> None:
        """Let others run, unless this process is in a write transaction, for whose end other writers wait."""
        if self._writing:
            return
        if self.dead:
            raise Death
        if self.is_mortal:
            if self.baton.random.random() < self._dies:
                self.dead = True
                self.baton.trace(f"{self.name} dies before {what}")
                raise Death
            self.held_at -= 1
            if self.held_at == 0 and self.baton.victim is None:
                self.is_awaited = True
                self.baton.hold(self)
                self.baton.trace(f"{self.name} {'stops' if self.sleeps else 'is held'} before {what}")
        self.baton.point(self, what)
        if self._runtime is not None:
            forget(self._runtime)  # so that it notices what others remove
        self._renew_if_due()

    def sleep(self, seconds: float) -> None:
        self.asleep_until = self.baton.clock.now() + seconds
        self.point("the end of a pause")

    def after_commit(self) -> None:
        self._writing = False
        try:
            self._on_commit(self)
        except (
            Exception
        ) as error:  # Not raised here: what called the catalog might take it for a failure of its own.
            self.baton.stop(
                error if isinstance(error, Violation) else Violation(f"the model cannot follow: {error!r}")
            )
        self.point("what comes after a commit")

    def _renew_if_due(self) -> None:
        """Do what the session's thread does in a real process.

        It may be late as well: a process that wakes up may act before its lease is renewed.
        """
        session = self.session
        if (
            session._is_due()
            and not self._renewing
            and self.baton.random.random() < 0.5
            and session._lock.acquire(blocking=False)
        ):
            self._renewing = True
            try:
                session._extend()
            finally:
                self._renewing = False
                session._lock.release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._writing = True
        self.facts = {}
        try:
            yield
        finally:
            self._writing = False


class Intent:
    """The intended change of a statement; ``step`` is set when it becomes durable, at most once."""

    def __init__(self, effect: Effect) -> None:
        self.effect = effect
        self.step: int | None = None


class SimClock:
    """The simulation's clock; sleeping passes the baton on."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self) -> float:
        return self._process.baton.clock.now()

    def sleep(self, seconds: float) -> None:
        self._process.sleep(seconds)


class SimSession(Session):
    """A session that the simulation renews."""

    def _renew(self) -> None:
        return


class SimCatalog(Catalog):
    def __init__(self, process: Process, folder: Path) -> None:
        super().__init__(sqlite_url(folder / CATALOG_FILE), SimClock(process))
        self._process = process
        self.after_commit = process.after_commit
        if not _dialect:
            _dialect.append(self.database.engine.dialect)
        (self.database.engine.dialect,) = _dialect
        self.database.engine.update_execution_options(compiled_cache=_compiled)
        # Nothing here has to survive a power failure.
        event.listen(
            self.database.engine,
            "connect",
            lambda connection, _: connection.execute("PRAGMA synchronous=OFF"),
        )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        self._process.point("a look at the catalog")
        with super().read() as conn:
            yield conn

    @contextmanager
    def write(self) -> Iterator[Writer]:
        self._process.point("a catalog transaction")
        with self._process.writing(), super().write() as tx:
            yield tx


class SimFiles(LocalFiles):
    """Files where each change of the disk and each read is a point.

    A file may have been collected just before it is read.
    """

    def __init__(self, process: Process, folder: Path) -> None:
        super().__init__(folder)
        self._process = process

    def read(self, name: str) -> bytes:
        self._process.point("a look at a file")
        return super().read(name)

    def _mkdir(self, path: str) -> None:
        self._process.point("mkdir")
        super()._mkdir(path)

    def _create(self, path: str) -> int:
        self._process.point("create")
        return super()._create(path)

    def _append(self, descriptor: int, data: memoryview) -> int:
        self._process.point("append")
        return super()._append(descriptor, data)

    def _flush(self, descriptor: int) -> None:
        self._process.point("flush")

    def _sync(self, path: str) -> None:
        pass

    def _unlink(self, path: str) -> None:
        self._process.point("unlink")
        super()._unlink(path)

    def _rmdir(self, path: str) -> None:
        self._process.point("rmdir")
        super()._rmdir(path)
