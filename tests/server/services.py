"""Services for tests: real ones, in a thread of this process or in a process of their own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

import strandline
from strandline import Database, Settings
from tests.processes import environment, start_python
from tests.quick_files import QuickFiles

if TYPE_CHECKING:
    from strandline.server import ServerSettings
    from strandline.server.service import Service

SETTINGS = Settings(engine="process", carry_on_seconds=0.1, session_seconds=5.0)
SHOP = """
CREATE TABLE `sales/orders` (id Uint64 NOT NULL, customer Utf8, total Decimal(10, 2), PRIMARY KEY (id),
                             INDEX by_customer GLOBAL SYNC ON (customer) COVER (total));
CREATE TABLE `sales/customers` (name Utf8 NOT NULL, PRIMARY KEY (name));
CREATE TABLE `hr/salaries` (name Utf8 NOT NULL, salary Int64, PRIMARY KEY (name));
UPSERT INTO `sales/orders` (id, customer, total) VALUES (1, 'ada', 10.5), (2, 'bob', 20);
UPSERT INTO `sales/customers` (name) VALUES ('ada'), ('bob');
UPSERT INTO `hr/salaries` (name, salary) VALUES ('ada', 1000);
CREATE BACKUP COLLECTION nightly (TABLE `sales/orders`) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true');
CREATE BACKUP COLLECTION people (TABLE `hr/salaries`) WITH (STORAGE = 'cluster');
"""


@dataclass
class Running:
    """A service that runs in this process.

    Attributes:
        tokens: a token for each role, and ``sales``: reads below /sales, and ``sales-operate``.
    """

    url: str
    port: int
    db: Database
    service: Service
    tokens: dict[str, str] = field(default_factory=dict)

    def client(self, who: str | None = "admin", **options: Any) -> httpx.Client:
        """A client with the token of a role. None: without one."""
        headers = {} if who is None else {"Authorization": f"Bearer {self.tokens.get(who, who)}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60.0, **options)

    def remote(self, who: str = "admin") -> strandline.RemoteDatabase:
        return strandline.RemoteDatabase(self.url, self.tokens[who])


def make_shop(folder: Path) -> Database:
    """A warehouse with tables below /sales and /hr, and a backup collection of each."""
    db = strandline.connect(folder, files=QuickFiles(str(folder)), settings=SETTINGS)
    db.sql(SHOP)
    return db


def make_tokens(db: Database) -> dict[str, str]:
    made = {role: db.create_token(role, role=role).token for role in ("read", "operate", "admin")}
    made["sales"] = db.create_token("sales", role="read", paths=["/sales"]).token
    made["sales-operate"] = db.create_token("sales-operate", role="operate", paths=["/sales"]).token
    return made


@contextlib.contextmanager
def serving(db: Database, settings: ServerSettings) -> Iterator[Running]:
    """Serve a database in a thread."""
    from strandline.server.app import create_app
    from strandline.server.run import listen, make_server

    app = create_app(db, settings)
    started = threading.Event()
    with listen(settings) as sock:
        port = sock.getsockname()[1]
        server = make_server(app, settings, started.set)
        thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
        thread.start()
        assert started.wait(60)
        try:
            yield Running(f"http://127.0.0.1:{port}", port, db, app.state.service)
        finally:
            server.should_exit = True
            app.state.service.drain()
            thread.join(60)


@contextlib.contextmanager
def serve_process(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that serves the warehouse in a folder, as a user starts it; with its URL."""
    env = environment() | {"STRANDLINE_SESSION_SECONDS": "2", "STRANDLINE_CARRY_ON_SECONDS": "0.2"}
    with start_python(
        "-m", "strandline", "-w", str(folder), "serve", "--port", "0", *arguments, env=env
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("serving "), (line, process.communicate())
            yield process, line.split(" at ")[1].strip()
        finally:
            process.kill()


def finished(client: httpx.Client, operation: str) -> dict[str, Any]:
    """The operation when it has ended, as its events tell."""
    with client.stream("GET", f"/v1/operations/{operation}/events") as events:
        assert events.status_code == 200
        last: dict[str, Any] = {}
        for line in events.iter_lines():
            if line.startswith("data: {") and line != "data: {}":
                last = json.loads(line[len("data: ") :])
    return last
