"""Measure a service: requests per second and p99 beside a bare FastAPI handler, many clients, and memory.

    python bench/server.py [--seconds 10] [--clients 16] [--crowd-seconds 60]

1. ``status``, a row by its key, a SELECT by key and a handler that returns a constant: the same clients, one
   after the other, in one run. The bare handler runs in the same kind of process and server.
2. Event streams: the time until all of many streams have an event of an operation.
3. A crowd: 200 clients read for a minute beside a restore and a load. Every answer is checked.
4. Memory: the resident size of the service after each of several rounds of requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import strandline  # noqa: E402
from bench.report import Report, folder_of, folder_options  # noqa: E402

ROWS = 10_000
CROWD = 200
STREAMS = 200
BARE = """
import sys, uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.get("/")
async def root() -> dict[str, str]:
    return {"status": "ok"}
config = uvicorn.Config(app, port=int(sys.argv[1]), log_level="critical", http="h11", loop="asyncio")
uvicorn.Server(config).run()
"""
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


class Connection:
    """A connection that sends one request after the other, with as little work as possible."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)

    async def send(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        data = b"" if body is None else json.dumps(body).encode()
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            (
                int(line.partition(":")[2])
                for line in head.splitlines()
                if line.lower().startswith("content-length")
            ),
            0,
        )
        return int(head.split()[1]), await self._reader.readexactly(length)

    async def lines(self, path: str) -> None:
        self._writer.write(
            f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token}\r\n\r\n".encode()
        )

    async def line(self) -> bytes:
        return await self._reader.readline()


@contextmanager
def process(*arguments: str, port: int, path: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server process that answers at ``path``."""
    with subprocess.Popen([sys.executable, *arguments], env=ENV, stdout=subprocess.DEVNULL) as made:
        try:
            asyncio.run(_ready(port, path))
            yield made
        finally:
            made.send_signal(signal.SIGTERM)


async def _ready(port: int, path: str) -> None:
    while True:
        try:
            connection = Connection(port, "")
            await connection.open()
            await connection.send("GET", path)
            return
        except OSError:
            await asyncio.sleep(0.1)


async def load(
    port: int, token: str, wanted: list[tuple[str, str, Any]], clients: int, seconds: float
) -> dict[str, Any]:
    """Let clients send requests in turn; return the number per second, the p99 and the wrong answers."""
    until = time.perf_counter() + seconds
    taken: list[float] = []
    wrong: list[tuple[int, bytes]] = []

    async def one(first: int) -> None:
        connection = Connection(port, token)
        await connection.open()
        number = first
        while (began := time.perf_counter()) < until:
            status, body = await connection.send(*wanted[number % len(wanted)])
            taken.append(time.perf_counter() - began)
            if status != 200:
                wrong.append((status, body[:200]))
            number += 1

    await asyncio.gather(*(one(n) for n in range(clients)))
    taken.sort()
    return {
        "rate": len(taken) / seconds,
        "p99": taken[int(len(taken) * 0.99)],
        "wrong": wrong,
        "count": len(taken),
    }


async def fan_out(port: int, token: str) -> float:
    """Return the time from the start of an operation until all streams have its first event."""
    connections = [Connection(port, token) for _ in range(STREAMS)]
    for each in connections:
        await each.open()
        await each.lines("/v1/operations/events")

    async def until(connection: Connection, text: bytes) -> None:
        while text not in await connection.line():
            pass

    await asyncio.gather(*(until(each, b"retry:") for each in connections))
    await asyncio.sleep(1.0)
    caller = Connection(port, token)
    await caller.open()
    began = time.perf_counter()
    _, body = await caller.send("POST", "/v1/collections/nightly/backups", {})
    started = json.loads(body)["id"].encode()
    await asyncio.gather(*(until(each, started) for each in connections))
    return time.perf_counter() - began


def resident(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def by_key() -> list[tuple[str, str, Any]]:
    return [("POST", "/v1/tables/row", {"path": "/orders", "key": [k * 7 % ROWS]}) for k in range(200)]


def selects() -> list[tuple[str, str, Any]]:
    sql = "SELECT v FROM orders WHERE k = :k"
    return [("POST", "/v1/sql", {"sql": sql, "params": {"k": k * 7 % ROWS}}) for k in range(200)]


async def crowd(port: int, token: str, file: Path, seconds: float) -> dict[str, Any]:
    """Let many clients read beside a restore and a load."""
    admin = Connection(port, token)
    await admin.open()

    async def work() -> list[int]:
        status, _ = await admin.send("POST", "/v1/collections/nightly/restore", {"into": "/restored"})
        loaded, _ = await admin.send(
            "POST", "/v1/tables/load", {"path": "/loaded", "files": [str(file)], "key": ["k"]}
        )
        return [status, loaded]

    found, done = await asyncio.gather(load(port, token, by_key() + selects(), CROWD, seconds), work())
    return found | {"done": done}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--crowd-seconds", type=float, default=60.0)
    parser.add_argument("--port", type=int, default=18080)
    folder_options(parser)
    given = parser.parse_args()
    report = Report()
    with folder_of(given) as folder:
        warehouse = folder / "wh"
        with strandline.connect(warehouse) as db:
            db.sql("CREATE TABLE orders (k Uint64 NOT NULL, v Utf8, PRIMARY KEY (k))")
            db.table("/orders").upsert([{"k": k, "v": f"value {k}"} for k in range(ROWS)])
            db.create_collection("nightly", tables=["orders"]).backup()
            token = db.create_token("bench", role="admin").token
        file = folder / "rows.csv"
        file.write_text("k,v\n" + "\n".join(f"{k},x" for k in range(100_000)))
        measure(report, given, warehouse, token, file)
    print(f"\n{report.render()}")


def measure(report: Report, given: argparse.Namespace, warehouse: Path, token: str, file: Path) -> None:
    port, bare = given.port, given.port + 1
    serve = ("-m", "strandline", "-w", str(warehouse), "serve", "--port", str(port))
    unlimited = ("--limit", "requests_per_second=0")
    with process("-c", BARE, str(bare), port=bare, path="/"):
        base = asyncio.run(load(bare, "", [("GET", "/", None)], given.clients, given.seconds))
    report.note("bare FastAPI handler", f"{base['rate']:.0f}/s, p99 {1000 * base['p99']:.1f} ms")
    with process(*serve, *unlimited, port=port, path="/readyz") as service:
        for name, wanted in (
            ("healthz", [("GET", "/healthz", None)]),
            ("step", [("GET", "/v1/step", None)]),
            ("status", [("GET", "/v1/status", None)]),
            ("row by key", by_key()),
            ("SELECT by key", selects()),
        ):
            found = asyncio.run(load(port, token, wanted, given.clients, given.seconds))
            ratio = base["rate"] / found["rate"]
            p99 = 1000 * found["p99"]
            report.note(
                name, f"{found['rate']:.0f}/s, p99 {p99:.1f} ms, {ratio:.1f} x the cost of a bare handler"
            )
            report.holds(f"{name}: no error", f"{found['count']} requests", not found["wrong"])
        report.at_most(f"an event at {STREAMS} streams", asyncio.run(fan_out(port, token)), 3.0, " s")
        sizes = []
        for _ in range(5):
            asyncio.run(load(port, token, by_key() + selects(), given.clients, given.seconds / 2))
            sizes.append(resident(service.pid))
        shown = ", ".join(f"{size:.0f}" for size in sizes)
        report.at_most(
            "memory of the last round against the second", sizes[-1] / sizes[1], 1.1, detail=f"MB: {shown}"
        )
        found = asyncio.run(crowd(port, token, file, given.crowd_seconds))
        report.holds(
            f"{CROWD} clients beside a restore and a load",
            f"{found['rate']:.0f}/s, p99 {1000 * found['p99']:.0f} ms, {len(found['wrong'])} errors",
            not found["wrong"] and found["done"] == [202, 200],
        )


if __name__ == "__main__":
    main()
