"""The feed of operations: one thread of the service reads their progress, and all event streams share it.

The catalog is read only while a stream is open, every ``POLL_SECONDS``, whatever the number of streams.
A stream that is slow gets the latest state of each operation, and not every state in between.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from strandline.api.progress import OperationInfo
from strandline.errors import OperationNotFound, StrandlineError, TooManyRequests
from strandline.json_values import plain

if TYPE_CHECKING:
    from strandline.server.service import Service

POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
"""Interval of comments that keep a quiet stream open, and of checks that its token is still valid."""
OVERLAP_SECONDS = 5.0
"""Operations that began this long before the previous poll are read again: clocks of machines differ."""


class Subscription:
    """The operations whose state one stream has not sent yet."""

    def __init__(self) -> None:
        self.pending: dict[str, tuple[OperationInfo, bytes]] = {}
        self.news = asyncio.Event()

    def put(self, info: OperationInfo, message: bytes) -> None:
        self.pending[info.id] = (info, message)
        self.news.set()


class OperationFeed:
    """Reads the progress of operations for all event streams. Used by the event loop only."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._subscriptions: set[Subscription] = set()
        self._task: asyncio.Task[None] | None = None
        self._seen: dict[str, tuple[bool, str]] = {}
        self._since = 0.0
        self.is_closed = False

    def require_room(self) -> None:
        """Raise TOO_MANY_REQUESTS if there are too many streams already."""
        if len(self._subscriptions) >= self._service.settings.event_streams:
            raise TooManyRequests("the service has too many event streams open")

    def close(self) -> None:
        """End all streams."""
        self.is_closed = True
        for subscription in self._subscriptions:
            subscription.news.set()

    async def stream(
        self,
        is_wanted: Callable[[OperationInfo], Awaitable[bool]],
        is_allowed: Callable[[], Awaitable[bool]],
        operation: OperationInfo | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield server-sent events: of one operation until it has ended, or of all operations.

        Args:
            is_wanted: whether the client gets an operation.
            is_allowed: whether the client's token is still valid; asked at every heartbeat.
            operation: the operation. None: all operations.
        """
        mine = Subscription()
        self._subscriptions.add(mine)
        self._service.metrics.event_streams.inc()
        self._start()
        try:
            yield b"retry: 1000\n\n"
            if operation is not None:
                mine.put(operation, encode(operation))
            while not self.is_closed:
                if not await self._has_news(mine):
                    if not await is_allowed():
                        return
                    yield b": still here\n\n"
                    continue
                pending, mine.pending = mine.pending, {}
                mine.news.clear()
                for info, message in pending.values():
                    if operation is not None and info.id != operation.id:
                        continue
                    if operation is None and not await is_wanted(info):
                        continue
                    yield message
                    if operation is not None and info.is_over:
                        yield b"event: end\ndata: {}\n\n"
                        return
            yield b"event: closing\ndata: {}\n\n"
        finally:
            self._subscriptions.discard(mine)
            self._service.metrics.event_streams.dec()

    @staticmethod
    async def _has_news(mine: Subscription) -> bool:
        try:
            await asyncio.wait_for(mine.news.wait(), HEARTBEAT_SECONDS)
        except asyncio.TimeoutError:
            return False
        return True

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._seen, self._since = {}, time.time()
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._subscriptions and not self.is_closed:
            try:
                for info, message in await self._service.run_quick(self._poll):
                    for subscription in self._subscriptions:
                        subscription.put(info, message)
            except StrandlineError:
                pass  # The catalog cannot be reached now: try again at the next poll.
            await asyncio.sleep(POLL_SECONDS)

    def _poll(self) -> list[tuple[OperationInfo, bytes]]:
        """Return the operations that have changed since the last poll."""
        db = self._service.database
        since, self._since = self._since - OVERLAP_SECONDS, db._runtime.clock.now()
        found = {
            info.id: info
            for part in (
                db.operations(state="running"),
                db.operations(state="cancelling"),
                db.operations(since=since),
            )
            for info in part
        }
        for operation_id, (is_over, _) in list(self._seen.items()):
            if operation_id in found:
                continue
            if is_over:
                del self._seen[operation_id]
                continue
            try:
                found[operation_id] = db.operation(operation_id)
            except OperationNotFound:
                del self._seen[operation_id]
        changed = []
        for info in found.values():
            mark = (info.is_over, f"{info.state} {info.parts_done} {info.parts} {info.progress}")
            if self._seen.get(info.id) != mark:
                self._seen[info.id] = mark
                changed.append((info, encode(info)))
        return changed


def encode(info: OperationInfo) -> bytes:
    """Return the event of an operation's state. JSON has no line breaks, so a name cannot forge an event."""
    return f"event: operation\nid: {info.id}\ndata: {json.dumps(plain(info))}\n\n".encode()
