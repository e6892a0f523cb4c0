"""Limits of requests: rates per token and address, and size and duration of bodies."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from math import ceil

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strandline.errors import TooManyRequests
from strandline.server.errors import BodyTooLarge, BodyTooSlow, respond
from strandline.server.settings import ServerSettings

REMEMBERED = 10_000
"""Maximum number of tokens or addresses that a limit remembers. The least recently seen one is forgotten."""


class RateLimit:
    """A token bucket per key. Thread-safe.

    Args:
        rate: Requests per second in the long run; 0: no limit.
        burst: Number of requests that may come at once.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, max(burst, 1.0)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, key: str, *, cost: float = 1.0) -> None:
        """Take ``cost`` from the bucket of ``key``; raise TOO_MANY_REQUESTS if it is empty."""
        if not self._rate:
            return
        now = time.monotonic()
        with self._lock:
            left, seen = self._left.pop(key, (self._burst, now))
            left = min(self._burst, left + (now - seen) * self._rate)
            is_allowed = left >= 1.0
            self._left[key] = (left - cost if is_allowed else left, now)
            if len(self._left) > REMEMBERED:
                self._left.popitem(last=False)
        if not is_allowed:
            error = TooManyRequests("the rate limit of the service is exceeded")
            error.seconds = ceil((1.0 - left) / self._rate)
            raise error


class LimitBodies:
    """ASGI middleware that refuses bodies that are too large or too slow, whatever their headers say."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check_length(scope)
            body = await self._read(receive)
        except (BodyTooLarge, BodyTooSlow) as error:
            response = respond(error)
            response.headers["Connection"] = "close"  # The rest of the body is not read.
            await response(scope, receive, send)
            return
        if body is None:
            return
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Message:
            return next(messages, None) or await receive()

        await self._app(scope, replay, send)

    def _check_length(self, scope: Scope) -> None:
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self._settings.max_body_bytes:
                raise self._too_large()

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(
            f"the body has more than {self._settings.max_body_bytes} bytes", "Send a smaller request."
        )

    async def _read(self, receive: Receive) -> bytes | None:
        """Return the whole body. None: the client has disconnected."""
        chunks: list[bytes] = []
        size = 0
        try:
            # Not asyncio.timeout, which Python 3.10 does not have.
            until = time.monotonic() + self._settings.body_seconds
            while True:
                message = await asyncio.wait_for(receive(), max(0.0, until - time.monotonic()))
                if message["type"] == "http.disconnect":
                    return None
                size += len(message.get("body", b""))
                if size > self._settings.max_body_bytes:
                    raise self._too_large()
                chunks.append(message.get("body", b""))
                if not message.get("more_body", False):
                    return b"".join(chunks)
        except asyncio.TimeoutError:
            raise BodyTooSlow(
                f"the body was not sent within {self._settings.body_seconds:g} seconds", "Send it faster."
            ) from None
