"""Files as objects of a bucket (S3, Google Cloud Storage, Azure), through ``obstore``.

An object appears as a whole or not at all, so there is nothing to sync. Folders are only prefixes of names.
Every change goes through the primitives at the end of this module, so that a test can stop a process before
any one of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import xxhash

from strandline.clock import SystemClock
from strandline.errors import (
    Corrupted,
    Internal,
    InvalidArgument,
    PreconditionFailed,
    StrandlineError,
    Unavailable,
)
from strandline.retry import tries
from strandline.settings import Settings
from strandline.storage.bucket import bucket_of
from strandline.storage.files import (
    CHUNK,
    PREFIX,
    Source,
    act_on_all,
    check_name,
    raise_first,
    read_checked,
)
from strandline.storage.object_parts import ObjectReader, prefetch

__all__ = ["ObjectFiles"]

T = TypeVar("T")

WHOLE_BYTES = 16 << 20
"""Maximum size of an upload in one request. Such a request also checks that the name is free."""
PART_BYTES = 8 << 20
REQUESTS = 32
"""Maximum number of small requests at the same time: each takes tens of milliseconds, mostly of waiting."""
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|specified bucket does not exist")
_STATUS = re.compile(r"status code: (\d{3} [A-Za-z ]+)")
_REASONS = {
    "TimedOut": "it did not answer in time",
    "dns error": "its name is not known",
    "Connection refused": "it refuses connections",
    "error sending request": "the connection failed",
    "error decoding response body": "the connection was cut",
}
_user: int | None = None
"""Id of the process that first used an object store. The client's threads do not survive a fork."""


class ObjectFiles:
    """Files below a URL.

    A pickle holds the settings with their secrets: it is meant for executors, and must not be stored.
    """

    def __init__(self, location: str, settings: Settings | None = None) -> None:
        self._bucket = bucket_of(location)
        self._settings = settings or Settings()
        self._stores: dict[int | None, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.location, self._settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"

    @property
    def location(self) -> str:
        return self._bucket.url

    def path(self, name: str) -> str:
        check_name(name)
        return self._bucket.spark_path(name, self._settings)

    def spark_options(self) -> Mapping[str, str]:
        return self._bucket.spark_options(self._settings)

    def readable(self, name: str) -> Any:
        return ObjectReader(self, name)

    def write(self, name: str, data: bytes) -> None:
        self._write(name, data, undo=True)

    def _write(self, name: str, data: bytes, *, undo: bool) -> None:
        check_name(name)
        if len(data) <= WHOLE_BYTES:
            if not self._create(name, data, undo=undo):
                raise Internal(f"the file {name} exists already, and files are never written twice")
            return
        parts = (data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES))
        self._send(name, parts, undo=undo)

    def make_root(self) -> None:
        """Do nothing: object stores need no folders."""

    def write_if_absent(self, name: str, data: bytes) -> bool:
        check_name(name)
        # On failure the object stays: it may be another writer's, and if it is ours, it is complete.
        return self._create(name, data, undo=False)

    def store(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        return self._store_content(name, chunks, undo=True)

    def _store_content(self, name: str, chunks: Iterable[bytes | memoryview], *, undo: bool) -> int:
        check_name(name)
        content, size = _buffer_small(map(bytes, chunks)), 0
        if isinstance(content, bytes):
            self._write(name, content, undo=undo)
            return len(content)

        def count_bytes() -> Iterator[bytes]:
            nonlocal size
            for chunk in content:
                size += len(chunk)
                yield chunk

        self._send(name, count_bytes(), undo=undo)
        return size

    def replace(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Write a file. An existing file with this name is replaced when the new one is complete.

        If the write fails, the existing file stays.
        """
        check_name(name)
        content = _buffer_small(map(bytes, chunks))
        if isinstance(content, bytes):
            self._repeat("write", name, lambda: self._put_over(name, content))
            return
        try:
            self._put_parts(name, content)
        except StrandlineError:
            raise
        except Exception as error:
            raise self._fault("write", name, error) from None

    def store_if_absent(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        try:
            # On failure the object stays: another writer may have written the same content meanwhile, and
            # need it.
            self._store_content(name, chunks, undo=False)
        except Internal:
            # An object appears as a whole, so the existing one has the same content.
            if not self.exists(name):
                raise

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        return self.store(name, map(bytes, read_checked(source, source_name, checksum)))

    def copy_if_absent(self, source: Source, source_name: str, name: str, checksum: str) -> None:
        self.store_if_absent(name, map(bytes, read_checked(source, source_name, checksum)))

    def seal(self, names: Iterable[str]) -> None:
        raise_first(self.sizes(list(names)))  # An object that exists is durable.

    def names(self, folder: str = "") -> Iterator[str]:
        below = folder.rstrip("/")
        if below:
            check_name(below)
        for found in self._list_folder(below):
            # Hadoop marks a folder with an empty object whose name ends with a slash, and the client drops
            # the slash. None of our files is empty.
            if found["size"]:
                yield found["path"]

    def remove(self, name: str) -> None:
        check_name(name)
        self._delete([name])

    def remove_all(self, names: Sequence[str]) -> None:
        for name in names:
            check_name(name)
        if names:
            self._delete(list(names))

    def remove_tree(self, folder: str) -> None:
        below = folder.rstrip("/")
        check_name(below)
        if found := [each["path"] for each in self._list_folder(below)]:
            self._delete(found)

    def exists(self, name: str) -> bool:
        check_name(name)
        try:
            self._store().head(name)
        except FileNotFoundError:
            return False
        except Exception as error:
            raise self._fault("read", name, error) from None
        return True

    def size(self, name: str) -> int:
        check_name(name)
        return self._read(name, lambda store: int(store.head(name)["size"]))

    def sizes(self, names: Sequence[str]) -> list[int | StrandlineError]:
        return act_on_all(self.size, names, REQUESTS)

    def read(self, name: str) -> bytes:
        check_name(name)
        return self._read(name, lambda store: bytes(store.get(name).bytes()))

    def find(self, name: str) -> bytes | None:
        try:
            return self.read(name)
        except Corrupted:
            return None

    def chunks(self, name: str) -> Iterator[bytes]:
        # Read by ranges instead of one stream: a broken connection costs only one range, which is retried.
        size = self.size(name)
        for at in range(0, size, PART_BYTES):
            data = self.range(name, at, min(size, at + PART_BYTES))
            for start in range(0, len(data), CHUNK):
                yield data[start : start + CHUNK]

    def range(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` up to ``end``."""
        return self._read(name, lambda store: bytes(store.get_range(name, start=start, end=end)))

    def checksum(self, name: str) -> str:
        hasher = xxhash.xxh3_128()
        for chunk in self.chunks(name):
            hasher.update(chunk)
        return PREFIX + hasher.hexdigest()

    # --- helpers -------------------------------------------------------------------------------------------

    def _store(self, retries: int | None = None) -> Any:
        global _user
        _user = _user or os.getpid()
        if os.getpid() != _user:
            raise PreconditionFailed(
                f"{self.location} cannot be used in a process that was forked from one that used it",
                "Start processes with multiprocessing's 'spawn', and connect in each of them.",
            )
        if retries not in self._stores:
            self._stores[retries] = self._bucket.store(self._settings, retries=retries)
        return self._stores[retries]

    def _list_folder(self, folder: str) -> Iterator[dict[str, Any]]:
        try:
            for found in self._store().list(folder or None, chunk_size=1000):
                yield from found
        except Exception as error:
            raise self._fault("list", folder or self.location, error) from None

    def _tries(self) -> Iterator[int]:
        """Yield once per attempt, with pauses, for requests that the client does not retry itself."""
        count, seconds = self._settings.storage_retries + 1, self._settings.storage_retry_seconds
        return tries(SystemClock(), lambda n: min(0.1 * 2**n, 5.0), count=count, seconds=seconds)

    def _read(self, name: str, act: Callable[[Any], T]) -> T:
        return self._repeat("read", name, lambda: act(self._store()))

    def _repeat(self, verb: str, name: str, act: Callable[[], T], *, once: bool = False) -> T:
        """Run an idempotent request; retry dropped connections."""
        failed: Exception = Internal("a request neither failed nor succeeded")
        for _ in self._tries():
            try:
                return act()
            except Exception as error:
                failed = error
                if once or not _is_cut(error):
                    break
        raise self._fault(verb, name, failed) from None

    def _create(self, name: str, data: bytes, *, undo: bool) -> bool:
        """Create an object; return False if an object with other content exists.

        Args:
            undo: remove the object on failure. Only for names that no other writer uses.
        """
        from obstore.exceptions import AlreadyExistsError

        failed: BaseException = Internal("a write neither failed nor succeeded")
        for _ in self._tries():
            try:
                self._put(name, data)
                return True
            except AlreadyExistsError:
                # An earlier attempt may have succeeded although its response was lost.
                return self.read(name) == data
            except BaseException as error:
                failed = error
                if not _is_cut(error):
                    break
        if undo:
            self._take_back(name)
        raise self._fault("write", name, failed) if isinstance(failed, Exception) else failed from None

    def _send(self, name: str, chunks: Iterable[bytes], *, undo: bool) -> None:
        """Upload an object in parts. It appears when the upload of the last part is complete.

        Args:
            undo: as in ``_create``.
        """
        if self.exists(name):
            raise Internal(f"the file {name} exists already, and files are never written twice")
        try:
            self._put_parts(name, chunks)
        except BaseException as error:
            if undo:
                self._take_back(name)
            if isinstance(error, StrandlineError) or not isinstance(error, Exception):
                raise
            raise self._fault("write", name, error) from None

    def _take_back(self, name: str) -> None:
        """Delete an object that a failed write may have created.

        If the deletion fails, too, the object stays as an orphan, which the collector deletes.
        """
        with suppress(StrandlineError):
            self._delete([name], retries=0)

    def _fault(self, verb: str, name: str, error: Exception) -> StrandlineError:
        """Translate a client error for the caller.

        Only known parts of the client's message are shown: the rest may contain credentials.
        """
        if isinstance(error, StrandlineError):
            return error
        from obstore import exceptions

        text = str(error)
        if isinstance(error, FileNotFoundError):
            if not _NO_BUCKET.search(text):
                with suppress(Exception):  # The response to a HEAD request does not tell what is missing.
                    try:
                        next(iter(self._store(0).list(chunk_size=1)), None)
                    except exceptions.BaseError as listed:
                        text = str(listed)
            if not _NO_BUCKET.search(text):
                return Corrupted(f"the file {name} is missing")
        if _NO_BUCKET.search(text):
            return Unavailable(
                f"there is no bucket {self._bucket.name}",
                "Create the bucket, or check its name, the endpoint and the region.",
            )
        status = _STATUS.search(text)
        denied = isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError))
        if denied or (status and status[1][:3] in ("401", "403")):
            return Unavailable(
                f"cannot {verb} the file {name}: {self.location} denies access",
                "Check the credentials in the environment or in Settings.storage_options, and that they "
                "allow to list, read, write and delete objects there.",
            )
        if isinstance(error, exceptions.InvalidPathError):
            return InvalidArgument(f"{name!r} is not a name of an object", "Choose another name.")
        reason = next((said for sign, said in _REASONS.items() if sign in text), "it failed")
        return Unavailable(
            f"cannot {verb} the file {name} at {self.location}: "
            + (f"the store answers {status[1].strip()}" if status else reason),
            "Check the network, the endpoint, the region and the credentials, then try again.",
        )

    # --- the primitives: nothing else changes the bucket ---------------------------------------------------

    def _put(self, name: str, data: bytes) -> None:
        self._store().put(name, data, mode="create")

    def _put_over(self, name: str, data: bytes) -> None:
        self._store().put(name, data, mode="overwrite", use_multipart=False)

    def _put_parts(self, name: str, chunks: Iterable[bytes]) -> None:
        # If ``chunks`` raises, the client aborts the upload.
        with prefetch(chunks) as coming:
            self._store().put(name, coming, use_multipart=True, chunk_size=PART_BYTES, max_concurrency=4)

    def _delete(self, names: list[str], *, retries: int | None = None) -> None:
        store = self._store(retries)

        def delete() -> None:
            try:
                store.delete(names)
            except FileNotFoundError as error:
                if _NO_BUCKET.search(str(error)):
                    raise
                # Some stores report a missing object as an error.
                raise_first(act_on_all(delete_one, names, REQUESTS))

        def delete_one(name: str) -> None:
            with suppress(FileNotFoundError):
                store.delete(name)

        self._repeat("remove", names[0], delete, once=retries == 0)


def _buffer_small(chunks: Iterator[bytes]) -> bytes | Iterator[bytes]:
    """Return all pieces joined if they fit into one request; otherwise return an iterator over the pieces."""
    first, size = list[bytes](), 0
    for chunk in chunks:
        first.append(chunk)
        size += len(chunk)
        if size > WHOLE_BYTES:
            break
    else:
        return b"".join(first)

    def take() -> Iterator[bytes]:
        while first:  # Pieces that were sent are freed.
            yield first.pop(0)
        yield from chunks

    return take()


def _is_cut(error: BaseException) -> bool:
    """Return True if a connection broke during a request that the client did not retry itself.

    The client retries only idempotent requests whose response has not begun.
    """
    text = str(error)
    under_way = "HTTP error" in text or "error decoding response body" in text
    return type(error).__name__ == "GenericError" and under_way and " retries, " not in text
