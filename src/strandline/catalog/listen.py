"""On PostgreSQL the board need not be polled: a thread listens, and tells the cache when there is something
new."""

from __future__ import annotations

import threading

from strandline.catalog.board import CHANNEL
from strandline.catalog.cache import SchemeCache
from strandline.errors import StrandlineError

_WAIT_SECONDS = 0.5


class Listener:
    """Keeps a cache fresh until ``close``. If its connection breaks, the cache goes back to polling until it
    is there again."""

    def __init__(self, cache: SchemeCache) -> None:
        self._cache = cache
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="strandline-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def _listen(self) -> None:
        import psycopg

        url = self._cache.catalog.engine.url.set(drivername="postgresql").render_as_string(
            hide_password=False
        )
        while not self._stop.is_set():
            try:
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute(f"LISTEN {CHANNEL}".encode())
                    self._cache.poll()  # what was published before we listened
                    self._cache.is_listening = True
                    while not self._stop.is_set():
                        for _ in connection.notifies(timeout=_WAIT_SECONDS, stop_after=1):
                            self._cache.poll()
            except (psycopg.Error, StrandlineError):
                self._cache.is_listening = False
                self._stop.wait(_WAIT_SECONDS)
        self._cache.is_listening = False


def listen(cache: SchemeCache) -> Listener | None:
    """A listener where the catalog can notify; None where it must be polled."""
    return None if cache.catalog.is_sqlite else Listener(cache)
