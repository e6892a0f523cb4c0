"""The client of ``strandline serve``: ``strandline.connect("https://host", token=...)``.

``RemoteDatabase`` has the methods of ``Database`` that ``api.verbs.VERBS`` lists, with the same parameters
and results, and ``sql`` for one SELECT. Methods that start an operation differ: they return the operation's
``OperationInfo``, which has ended unless ``wait=False``. All other methods raise UNSUPPORTED.
"""

from __future__ import annotations

import http.client
import inspect
import ipaddress
import json
import re
import ssl
import time
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, is_dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Union, cast, get_args, get_origin
from urllib.parse import quote, urlencode, urlsplit

from strandline.api.progress import OperationInfo
from strandline.api.result import Result
from strandline.api.verbs import BY_NAME, Verb, type_hints
from strandline.catalog.part_progress import ShardInfo, StageInfo
from strandline.errors import (
    BY_CODE,
    Internal,
    InvalidArgument,
    StrandlineError,
    TimedOut,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from strandline.json_values import plain

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.sql.binding import Params

POLL_SECONDS = 0.5
"""Interval at which the client asks for the progress of an operation that it waits for."""
TRIES = 3
"""Number of times that a request which only reads is sent if its connection breaks."""
TIMEOUT_SECONDS = 660.0
"""Maximum time without an answer; the service itself interrupts a call before."""
ARROW = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, kw_only=True)
class RemoteOperationInfo(OperationInfo):
    """The state of an operation at a service. ``shards`` and ``stages`` are requested when they are used."""

    @cached_property
    def shards(self) -> list[ShardInfo]:
        return self.first_shards(1000)

    @cached_property
    def stages(self) -> list[StageInfo]:
        return self._ask("Database.stages")  # type: ignore[no-any-return]

    def first_shards(self, most: int) -> list[ShardInfo]:
        return self._ask("Database.shards", limit=most)  # type: ignore[no-any-return]

    def _ask(self, name: str, **arguments: Any) -> Any:
        client: Client = self.__dict__["_client"]
        return client.call(BY_NAME[name], operation_id=self.id, **arguments)


@dataclass(frozen=True, eq=False, repr=False)
class RemoteResult(Result):
    """The rows of a query that a service has run. ``truncated``: the service has left out further rows."""

    table: pa.Table = field(kw_only=True)
    truncated: bool = field(kw_only=True)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.table.schema.names)

    def to_arrow(self) -> pa.Table:
        return self.table

    def _rows(self, limit: int | None) -> list[tuple[Any, ...]]:
        found = self.table if limit is None else self.table.slice(0, limit)
        columns = [column.to_pylist() for column in found.columns]
        return list(zip(*columns, strict=True))

    def __iter__(self) -> Any:
        return iter(self._rows(None))


class Client:
    """Sends requests to one service. Thread-safe: each request has its own connection."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise InvalidArgument(f"{url!r} is not the URL of a service", "Write it as https://host:port.")
        if token is None or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise Unauthenticated(
                "the service needs a token", "Give token=..., STRANDLINE_TOKEN or --token-file FILE."
            )
        self.is_encrypted = parts.scheme == "https"
        if not self.is_encrypted and not _is_loopback(parts.hostname):
            raise InvalidArgument(
                f"{url} would send the token in plain text", "Use https://, or http:// on this machine only."
            )
        self.host, self.port, self.base = parts.hostname, parts.port, parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "strandline"}

    def send(
        self, method: str, path: str, body: Any = None, *, repeatable: bool | None = None, accept: str = ""
    ) -> tuple[bytes, Mapping[str, str]]:
        """Send a request; return the body and the headers of the answer, or raise its error."""
        headers = self._headers | {"Accept": accept or "application/json"}
        data = None
        if body is not None:
            data = json.dumps(plain(body)).encode()
            headers["Content-Type"] = "application/json"
        left = TRIES if (method == "GET" if repeatable is None else repeatable) else 1
        while True:
            left -= 1
            try:
                with closing(self._open()) as connection:
                    connection.request(method, self.base + path, data, headers)
                    answer = connection.getresponse()
                    content = answer.read()
                break
            except (OSError, http.client.HTTPException) as error:
                if not left:
                    raise Unavailable(
                        f"the service at {self.host} does not answer: {error or type(error).__name__}",
                        "Check the URL, and that strandline serve runs there.",
                    ) from None
                time.sleep(POLL_SECONDS)
        if answer.status >= 400:
            raise _error_of(answer.status, content)
        return content, {name.lower(): value for name, value in answer.getheaders()}

    def _open(self) -> http.client.HTTPConnection:
        if self.is_encrypted:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT_SECONDS, context=context)
        return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_SECONDS)

    def call(self, verb: Verb, **arguments: Any) -> Any:
        """Call a method of the Python API at the service; return its result."""
        path = "/v1" + re.sub(
            r"{(\w+)}", lambda found: quote(str(arguments.pop(found[1])), safe=""), verb.path
        )
        if verb.method in ("GET", "DELETE"):
            defaults = {name: parameter.default for name, parameter in verb.parameters.items()}
            given = {
                name: "null" if value is None else plain(value)
                for name, value in arguments.items()
                if name not in defaults or value != defaults[name]
            }
            query = f"?{urlencode(given, doseq=True)}" if given else ""
            content, _ = self.send(verb.method, path + query)
        else:
            content, _ = self.send(verb.method, path, arguments or None, repeatable=verb.role == "read")
        return self.read(verb.returns, json.loads(content))

    def rows(self, path: str, wanted: Mapping[str, Any]) -> RemoteResult:
        """Request rows as an Arrow stream."""
        import pyarrow as pa

        body = {name: value for name, value in wanted.items() if value is not None}
        content, headers = self.send("POST", path, body, repeatable=True, accept=ARROW)
        with pa.ipc.open_stream(content) as reader:
            table = reader.read_all()
        return RemoteResult(table=table, truncated=headers.get("strandline-truncated") == "true")

    def read(self, kind: Any, value: Any) -> Any:
        """Turn JSON into a value of a type of the Python API."""
        found = structure(kind, value)
        for each in found if isinstance(found, list) else [found]:
            if isinstance(each, OperationInfo):
                each.__dict__["_client"] = self
        return found


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _error_of(status: int, content: bytes) -> StrandlineError:
    try:
        told = json.loads(content)["error"]
        error = BY_CODE.get(told["code"], Internal)(told["message"], told["hint"])
        error.operation, error.outcome = told["operation"], told["outcome"]
    except (ValueError, KeyError, TypeError):
        return Unavailable(
            f"the answer has the HTTP status {status} and is not from Strandline", "Check the URL."
        )
    return error


def structure(kind: Any, value: Any) -> Any:
    """Turn JSON into a value of a type of the Python API. JSON that does not fit is returned as it is."""
    origin, of = get_origin(kind), get_args(kind)
    if value is None:
        return None
    if origin in (Union, types.UnionType):
        (found,) = [each for each in of if each is not type(None)][:1]
        return structure(found, value)
    if origin in (list, tuple) and isinstance(value, list):
        if origin is tuple and of[-1] is not Ellipsis:
            return tuple(value)
        return origin(structure(of[0], each) for each in value)
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {key: structure(of[1], each) for key, each in value.items()}
    if kind is datetime:
        return datetime.fromisoformat(value.replace("Z", "+00:00"))
    if (
        isinstance(kind, type)
        and isinstance(value, dict)
        and (is_dataclass(kind) or hasattr(kind, "_fields"))
    ):
        wanted = RemoteOperationInfo if kind is OperationInfo else kind
        hints = _hints(kind)
        # A newer service may send fields that this version does not know.
        return wanted(**{name: structure(hints[name], each) for name, each in value.items() if name in hints})
    return value


_hints = cache(type_hints)


class _Handle:
    """An object whose methods are requests to the service.

    Args:
        kind: the class of the Python API that it stands for.
        bound: the arguments that name the object, such as ``{"collection": "nightly"}``.
    """

    def __init__(self, client: Client, kind: str, bound: Mapping[str, str]) -> None:
        self._client, self._kind, self._bound = client, kind, bound

    def __dir__(self) -> list[str]:
        """Return the methods that the service offers, for completion."""
        offered = {verb.rpartition(".")[2] for verb in BY_NAME if verb.startswith(f"{self._kind}.")}
        return sorted({*super().__dir__(), *offered})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__") or name in ("_client", "_kind", "_bound"):  # A copy has none of these yet.
            raise AttributeError(name)
        verb = BY_NAME.get(f"{self._kind}.{name}")
        if verb is None:
            what = "this command" if name.startswith("_") else f"{self._kind}.{name}"
            raise Unsupported(
                f"{what} is not available over the service",
                "Run it on a machine that can open the warehouse itself.",
            )

        def call(*args: Any, wait: bool = True, **given: Any) -> Any:
            names = [each for each in verb.parameters if each not in self._bound and each != "db"]
            is_open = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in verb.parameters.values())
            if len(args) > len(names) or not (is_open or given.keys() <= set(names)):
                raise InvalidArgument(
                    f"{verb.name} does not take these arguments", f"It takes: {', '.join(names)}."
                )
            arguments = {**self._bound, **dict(zip(names, args, strict=False)), **given}
            found = self._client.call(verb, **arguments)
            if verb.starts and wait:
                return RemoteDatabase.of(self._client).wait(found.id)
            return found

        return call


class RemoteCollection(_Handle):
    """A backup collection at a service."""

    def __init__(self, client: Client, name: str) -> None:
        super().__init__(client, "Collection", {"collection": name})
        self.name = name


class RemoteSchedule(_Handle):
    """A schedule at a service."""

    def __init__(self, client: Client, name: str) -> None:
        super().__init__(client, "Schedule", {"schedule": name})
        self.name = name


class RemoteTable(_Handle):
    """A table at a service."""

    def __init__(self, client: Client, path: str) -> None:
        super().__init__(client, "Table", {"path": path})
        self.path = path

    def get(self, *key: Any) -> dict[str, Any] | None:
        """Return the row with this key. None: no row has it. Decimals, times and bytes are texts."""
        content, _ = self._client.send(
            "POST", "/v1/tables/row", {"path": self.path, "key": key}, repeatable=True
        )
        found: dict[str, Any] | None = json.loads(content)["row"]
        return found

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        at: int | datetime | str | None = None,
        view: str | None = None,
        params: Any = None,
    ) -> RemoteResult:
        """Return columns and rows of the table; the arguments are those of ``Table.scan``."""
        given = {"columns": columns, "where": where, "at": at, "view": view, "params": params}
        return self._client.rows("/v1/tables/rows", {"path": self.path, **given})


class RemoteDatabase(_Handle):
    """A warehouse behind ``strandline serve``. Thread-safe."""

    def __init__(self, url: str, token: str | None) -> None:
        super().__init__(Client(url, token), "Database", {})

    @classmethod
    def of(cls, client: Client) -> RemoteDatabase:
        """Return the database of a client."""
        made = cls.__new__(cls)
        _Handle.__init__(made, client, "Database", {})
        return made

    def __repr__(self) -> str:
        return f"<RemoteDatabase {self._client.host}>"

    def __enter__(self) -> RemoteDatabase:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: there is no open connection."""

    @property
    def step(self) -> int:
        """The step of the last commit."""
        return cast(int, self._client.call(BY_NAME["Database.step"]))

    def collection(self, name: str) -> RemoteCollection:
        """Return a backup collection by its name."""
        return RemoteCollection(self._client, name)

    def collections(self) -> list[RemoteCollection]:
        """Return all backup collections that the token may use, by name."""
        found = self._client.call(BY_NAME["Database.collections"])
        return [self.collection(info.name) for info in found]

    def create_collection(
        self, name: str, tables: Sequence[str] | None = None, **given: Any
    ) -> RemoteCollection:
        """Create a backup collection; the arguments are those of ``Database.create_collection``."""
        verb = BY_NAME["Database.create_collection"]
        return self.collection(self._client.call(verb, name=name, tables=tables, **given).name)

    def attach(self, url: str, name: str | None = None, **given: Any) -> RemoteCollection:
        """Attach a repository; the arguments are those of ``Database.attach``."""
        verb = BY_NAME["Database.attach"]
        return self.collection(self._client.call(verb, url=url, name=name, **given).name)

    def schedule(self, name: str) -> RemoteSchedule:
        """Return a schedule by its name."""
        return RemoteSchedule(self._client, name)

    def create_schedule(self, name: str, collection: str, **given: Any) -> RemoteSchedule:
        """Create a schedule; the arguments are those of ``Database.create_schedule``."""
        verb = BY_NAME["Database.create_schedule"]
        return self.schedule(self._client.call(verb, name=name, collection=collection, **given).name)

    def table(self, path: str) -> RemoteTable:
        """Return a table by its path, to read its rows."""
        return RemoteTable(self._client, path)

    def verify(self, collection: str, **given: Any) -> OperationInfo:
        """Verify the backups of a collection."""
        return self.collection(collection).verify(**given)  # type: ignore[no-any-return]

    def forget(self, operation_id: str | None = None, *, failed: bool = False) -> int:
        """Remove the record of an ended operation, or with ``failed`` those of all failed operations."""
        name = "Database.forget_failed" if failed else "Database.forget"
        given = {} if operation_id is None else {"operation_id": operation_id}
        return cast(int, self._client.call(BY_NAME[name], **given))

    def sql(self, text: str, params: Params = None) -> RemoteResult:
        """Run one SELECT at the service."""
        return self._client.rows("/v1/sql", {"sql": text, "params": params})

    def metrics(self) -> str:
        """Return the metrics of the warehouse and of the service process."""
        return self._client.send("GET", "/metrics")[0].decode()

    def wait(
        self,
        operation_id: str,
        timeout: float | None = None,
        on_progress: Callable[[OperationInfo], None] | None = None,
    ) -> OperationInfo:
        """Wait until an operation has ended; raise its error if it failed."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            info: OperationInfo = self._client.call(BY_NAME["Database.operation"], operation_id=operation_id)
            if on_progress is not None:
                on_progress(info)
            if info.is_over:
                break
            if until is not None and time.monotonic() >= until:
                raise TimedOut(f"operation {operation_id} has not ended yet", "It goes on; wait again.")
            time.sleep(POLL_SECONDS)
        if info.error is not None:
            error = BY_CODE.get(info.error["code"], Internal)(info.error["message"], info.error["hint"])
            error.operation = operation_id
            raise error
        return info
