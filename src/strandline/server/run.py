"""Serve until SIGTERM, then shut down without losing a request or an operation.

1. SIGTERM: ``/readyz`` answers 503, event streams end, and every response closes its connection. Requests are
   still accepted for ``drain_seconds``, so that load balancers and clients can go elsewhere.
2. The process stops to accept connections, and finishes its requests. After ``shutdown_seconds`` it
   interrupts those that still run; nothing of them is visible.
3. Housekeeping and schedules stop. The database is closed: its operations are left to other processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType

import uvicorn
from fastapi import FastAPI
from h11 import IDLE
from uvicorn.protocols.http.h11_impl import H11Protocol

from strandline.api import Database
from strandline.errors import Unavailable
from strandline.server.app import create_app
from strandline.server.service import Service
from strandline.server.settings import ServerSettings

log = logging.getLogger("strandline")

MAX_HEADER_BYTES = 32 * 1024
CONNECTIONS = 2000
"""Maximum number of connections; beyond it, requests get 503."""
FIRST_SECONDS = 1.0
"""At the end of the process: maximum time for a client that has connected to send its request."""
BACKLOG = 1024
"""Maximum number of connections that wait to be accepted."""


class Protocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose client sends headers too slowly. Uvicorn has no such limit."""

    header_seconds = 15.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_watching()

    def _watch(self) -> None:
        """Start the clock while the headers of a request are incomplete, else stop it."""
        if self.conn.their_state is not IDLE:
            self._stop_watching()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.header_seconds, self._give_up)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def shutdown(self) -> None:
        """Close the connection after its request. A client that has just connected may still send one."""
        if self.cycle is None:
            self._stop_watching()
            self._deadline = self.loop.call_later(FIRST_SECONDS, self._give_up)
        else:
            super().shutdown()

    def _give_up(self) -> None:
        self._deadline = None
        is_waiting = self.cycle is None or self.cycle.response_complete
        if is_waiting and self.conn.their_state is IDLE:
            self.transport.close()


class Server(uvicorn.Server):
    """Uvicorn that drains before it stops to accept connections."""

    def __init__(self, config: uvicorn.Config, service: Service, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._on_start = service, on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain at the first signal; stop at once at the second SIGINT."""
        if self._service.is_draining:
            super().handle_exit(sig, frame)
            return
        self._service.is_draining = True
        self._loop.call_soon_threadsafe(self._drain, sig, frame)

    def _drain(self, sig: int, frame: FrameType | None) -> None:
        log.info("stopping: requests are accepted for %g more seconds", self._service.settings.drain_seconds)
        self._service.drain()
        exit_ = super().handle_exit
        self._loop.call_later(self._service.settings.drain_seconds, lambda: exit_(sig, frame))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for sock in sockets or ():
            await self._accept_rest(sock)
        interrupt = self._loop.call_later(self._service.settings.shutdown_seconds, self._interrupt)
        await super().shutdown(sockets)
        interrupt.cancel()
        self._captured_signals.clear()  # Uvicorn would raise the signal again, which kills the process.

    async def _accept_rest(self, sock: socket.socket) -> None:
        """Accept the connections that wait. They would be reset when the socket is closed."""
        self._loop.remove_reader(sock)
        connecting = set()
        with contextlib.suppress(OSError):  # None is left.
            while True:
                connection, _ = sock.accept()
                connection.setblocking(False)
                connected = self._loop.connect_accepted_socket(
                    self._make_protocol, connection, ssl=self.config.ssl
                )
                connecting.add(asyncio.ensure_future(connected))
        if connecting:
            await asyncio.wait(connecting, timeout=FIRST_SECONDS)

    def _make_protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    def _interrupt(self) -> None:
        log.warning("requests that still run are interrupted")
        self._service.stop.set()
        self._service.interrupt()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)


def run(
    open_database: Callable[[], AbstractContextManager[Database]],
    settings: ServerSettings,
    on_start: Callable[[Database, int], None] = lambda db, port: None,
) -> None:
    """Serve a warehouse until SIGTERM or Ctrl-C.

    Args:
        open_database: opens the database, and closes it at the end.
        on_start: called with the database and the port when the service accepts requests.
    """
    with listen(settings) as sock, open_database() as db:
        port = sock.getsockname()[1]
        make_server(create_app(db, settings), settings, lambda: on_start(db, port)).run([sock])


def listen(settings: ServerSettings) -> socket.socket:
    """Return a socket that is bound to the address of the service."""
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        # With the protocol: asyncio sends small packets at once only where it knows that it is TCP.
        sock = socket.socket(found[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(found[4])
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        return sock
    except OSError as error:
        raise Unavailable(
            f"the service cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
            "Choose another --port or --host, or stop the process that uses it.",
        ) from None


def make_server(
    app: FastAPI, settings: ServerSettings, on_start: Callable[[], None] = lambda: None
) -> Server:
    """Return the server of an application; ``server.run([socket])`` serves it."""
    protocol = type("LimitedProtocol", (Protocol,), {"header_seconds": settings.header_seconds})
    config = uvicorn.Config(
        app,
        http=protocol,
        loop="asyncio",  # ``_accept_rest`` knows this one.
        ws="none",
        lifespan="on",
        backlog=BACKLOG,
        access_log=False,  # Paths of requests may have secrets, or characters that forge lines.
        log_config=None,
        server_header=False,
        proxy_headers=False,  # ``auth.remote_of`` reads them.
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,
        # Longer than ``shutdown_seconds``, after which the service itself interrupts what still runs.
        timeout_graceful_shutdown=int(settings.shutdown_seconds) + 30,
    )
    return Server(config, app.state.service, on_start)
