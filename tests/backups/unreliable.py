"""A repository behind a failing connection: a chosen request fails in a chosen way.

A request is one call of ``Files`` that touches storage. It can fail in these ways:

- ``refused``: nothing was done;
- ``cut``: a part was done. A partly written file has a temporary name, never the requested one. A read
  returns only a part;
- ``late``: nothing was done, and the error comes when the lease on the repository has expired;
- ``unanswered``: it was done, but the response is an error;
- ``twice``: the same, but the client repeats the request itself, and only the second response is seen;
- ``delayed``: it was not done when the error came, nor at the next request, and is done after that. If the
  process has died, ``arrive`` does it;
- ``away``: nothing was done, and nothing is from then on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from strandline.backups.repository.repository_writer import LEASE_SECONDS
from strandline.clock import Clock
from strandline.errors import StrandlineError, Unavailable
from strandline.storage.files import Files, act_on_all, raise_first
from tests.catalogs import Death
from tests.crash.mortal import Fate
from tests.quick_files import QuickFiles

T = TypeVar("T")

_PARTS = itertools.count(1)
"""For names of temporary files: another process uses other names, also for the same content."""

WAYS = ("refused", "cut", "late", "unanswered", "twice", "delayed", "away")
READS = ("open", "look for", "measure", "read", "find", "check", "stream", "list")
"""Requests that change nothing: it does not matter whether a failed one was carried out."""


def ways_of(request: str) -> tuple[str, ...]:
    """Return the ways in which a request can fail that differ from each other."""
    if request not in READS:
        return WAYS
    told_in_pieces = request in ("stream", "list")
    return tuple(way for way in ("refused", "cut", "late", "away") if told_in_pieces or way != "cut")


class Line:
    """A connection for requests.

    Attributes:
        at: Number of the request that fails; 0: none.
        way: How it fails.
        fate: Kills the process at that request.
    """

    def __init__(self, clock: Clock, at: int = 0, way: str = "refused", fate: Fate | None = None) -> None:
        self.at, self.way, self.fate = at, way, fate
        self.trail: list[str] = []
        self.is_away = False
        self._clock = clock
        self._on_its_way: Callable[[], object] | None = None

    @property
    def failed(self) -> str | None:
        """The request that failed, or None."""
        return self.trail[self.at - 1] if 0 < self.at <= len(self.trail) else None

    def ask(self, what: str, do: Callable[[], T], part: Callable[[], object] = lambda: None) -> T:
        """Do something at the other end, or only a ``part`` of it."""
        if self.fate is not None:
            self.fate.meet(what)
        self.trail.append(what)
        if self.is_away:
            raise self._problem(what)
        if len(self.trail) != self.at:
            try:
                return do()
            finally:
                self.arrive()
        match self.way:
            case "cut":
                part()
            case "late":
                self._clock.sleep(LEASE_SECONDS + 600)
            case "unanswered":
                do()
            case "twice":
                do()
                if self.fate is None:
                    return do()
            case "delayed":
                self._on_its_way = do
            case "away":
                self.is_away = True
        if self.fate is not None:
            self.fate.dead = True
            raise Death
        raise self._problem(what)

    def arrive(self) -> None:
        """Carry out the delayed request."""
        if (do := self._on_its_way) is not None:
            self._on_its_way = None
            with suppress(StrandlineError):  # There is no process to receive the error.
                do()

    def _problem(self, what: str) -> Unavailable:
        return Unavailable(f"cannot {what}: the line is down", "Mend it.")


class FarFiles:
    """Files in a folder behind the connection."""

    def __init__(self, root: str | Path, line: Line) -> None:
        self._there = QuickFiles(root)
        self._line = line

    @property
    def location(self) -> str:
        return self._there.location

    def path(self, name: str) -> str:
        return self._there.path(name)

    def spark_options(self) -> Mapping[str, str]:
        return {}

    # --- reading -------------------------------------------------------------------------------------------

    def readable(self, name: str) -> Any:
        return self._line.ask("open", lambda: self._there.readable(name))

    def exists(self, name: str) -> bool:
        return self._line.ask("look for", lambda: self._there.exists(name))

    def size(self, name: str) -> int:
        return self._line.ask("measure", lambda: self._there.size(name))

    def sizes(self, names: Sequence[str]) -> list[int | StrandlineError]:
        return act_on_all(self.size, names, 1)

    def read(self, name: str) -> bytes:
        return self._line.ask("read", lambda: self._there.read(name))

    def find(self, name: str) -> bytes | None:
        return self._line.ask("find", lambda: self._there.find(name))

    def checksum(self, name: str) -> str:
        return self._line.ask("check", lambda: self._there.checksum(name))

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        return self._told("stream", lambda: [bytes(chunk) for chunk in self._there.chunks(name)])

    def names(self, folder: str = "") -> Iterator[str]:
        return self._told("list", lambda: list(self._there.names(folder)))

    def _told(self, what: str, tell: Callable[[], list[T]]) -> Iterator[T]:
        """Yield one value after the other; only the first half if the request is cut."""
        came: list[T] = []

        def half() -> None:
            all_ = tell()
            came.extend(all_[: len(all_) // 2])

        try:
            came += self._line.ask(what, tell, half)
        except Unavailable:
            yield from came
            raise
        yield from came

    # --- writing -------------------------------------------------------------------------------------------

    def make_root(self) -> None:
        self._line.ask("make", self._there.make_root)

    def write(self, name: str, data: bytes) -> None:
        self.store(name, (data,))

    def store(self, name: str, chunks: Iterable[bytes]) -> int:
        data = b"".join(chunks)
        return self._line.ask(
            "store", self._once(name, lambda: self._there.store(name, [data])), self._half(name, data)
        )

    def write_if_absent(self, name: str, data: bytes) -> bool:
        return self._line.ask(
            "create", lambda: self._there.write_if_absent(name, data), self._half(name, data)
        )

    def store_if_absent(self, name: str, chunks: Iterable[bytes]) -> None:
        data = b"".join(chunks)
        self._line.ask("put", lambda: self._there.store_if_absent(name, [data]), self._half(name, data))

    def copy(self, source: Files, source_name: str, name: str, checksum: str) -> int:
        return self._line.ask(
            "copy", self._once(name, lambda: self._there.copy(source, source_name, name, checksum))
        )

    def copy_if_absent(self, source: Files, source_name: str, name: str, checksum: str) -> None:
        self._line.ask(
            "send",
            lambda: self._there.copy_if_absent(source, source_name, name, checksum),
            lambda: self._half(name, source.read(source_name))(),
        )

    def seal(self, names: Iterable[str]) -> None:
        known = list(names)
        self._line.ask("seal", lambda: self._there.seal(known), lambda: self._there.seal(known[:1]))

    def remove(self, name: str) -> None:
        self._line.ask("remove", lambda: self._there.remove(name))

    def remove_all(self, names: Sequence[str]) -> None:
        raise_first(act_on_all(self.remove, names, 1))

    def remove_tree(self, folder: str) -> None:
        def first() -> None:
            for name in list(self._there.names(folder))[:1]:
                self._there.remove(name)

        self._line.ask("remove all", lambda: self._there.remove_tree(folder), first)

    def _half(self, name: str, data: bytes) -> Callable[[], object]:
        part = f"{name}.{next(_PARTS):032x}"
        return lambda: self._there.store(part, [data[: len(data) // 2]])

    def _once(self, name: str, do: Callable[[], int]) -> Callable[[], int]:
        """Files that are not shared have unique names: a client that repeats a request sees its own file."""
        return lambda: self._there.size(name) if self._there.exists(name) else do()


def go_through(db: Any, line: Line) -> None:
    """Let a database reach its repositories through the connection only."""
    db._runtime.files.opener = lambda root: FarFiles(root, line)
    db._runtime.files._opened.clear()
