"""The state of a service process: database, settings, limits, metrics and the feed of operations."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request

from strandline.cancellation import Interrupted, Work, doing
from strandline.errors import TimedOut, Unavailable
from strandline.server.feed import OperationFeed
from strandline.server.limits import RateLimit
from strandline.server.metrics import HttpMetrics
from strandline.server.settings import ServerSettings

if TYPE_CHECKING:
    from strandline.api import Database

T = TypeVar("T")

QUICK_THREADS = 8
"""Number of threads for reads of tokens and sessions, which must not wait for other calls."""


class Service:
    """The state of one service process, at ``app.state.service``."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.metrics = HttpMetrics()
        self.requests = RateLimit(settings.requests_per_second, 2 * settings.requests_per_second)
        self.failed_logins = RateLimit(
            settings.failed_logins_per_minute / 60, settings.failed_logins_per_minute
        )
        self.feed = OperationFeed(self)
        self.is_draining = False
        self.stop = threading.Event()
        """Set when the process shuts down: background threads and event streams end."""
        self._database: Database | None = None
        self._works: set[Work] = set()

    def open(self, database: Database) -> None:
        """Start to serve a database. Called once, when the event loop runs."""
        self._database = database
        self._quick = CapacityLimiter(QUICK_THREADS)
        self._threads = CapacityLimiter(self.settings.threads)

    @property
    def database(self) -> Database:
        if self._database is None:
            raise Unavailable("the service is starting or stopping", "Try again in a moment.")
        return self._database

    def drain(self) -> None:
        """Tell load balancers and clients to go elsewhere; end event streams. Other requests are answered."""
        self.is_draining = True
        self.feed.close()

    def close(self) -> None:
        """Serve no more requests."""
        self.drain()
        self.stop.set()
        self._database = None

    async def run_quick(self, read: Callable[[], T]) -> T:
        """Run a short read of the catalog in a thread."""
        return await to_thread.run_sync(read, limiter=self._quick)

    async def run(self, call: Callable[[], T], seconds: float | None = None) -> T:
        """Run a call of the Python API in a thread; interrupt it after ``seconds``.

        If the client disconnects, the call continues to its end: it may be about to commit.
        """
        limit = self.settings.request_seconds if seconds is None else seconds
        work = Work()

        def act() -> T:
            try:
                with doing(work):
                    return call()
            except Interrupted:  # Not to be raised in the event loop, which it would end.
                if self.stop.is_set():
                    raise Unavailable("the service is stopping", "Send the request again.") from None
                raise TimedOut(f"the request did not finish within {limit:g} seconds") from None

        self._works.add(work)
        try:
            task = asyncio.ensure_future(to_thread.run_sync(act, limiter=self._threads))
            done, _ = await asyncio.wait({task}, timeout=limit)
            if not done:
                work.end()
            return await asyncio.shield(task)
        finally:
            self._works.discard(work)

    def interrupt(self) -> None:
        """Interrupt all running calls."""
        for work in tuple(self._works):
            work.end()


def service_of(request: Request) -> Service:
    """Return the service that a request was sent to."""
    return cast(Service, request.app.state.service)


def database_of(request: Request) -> Database:
    """Return the database of the service."""
    return service_of(request).database
