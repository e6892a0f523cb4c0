"""A warehouse with some weeks of backups, and the service that shows it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from strandline import Database
from strandline.api.access import Role
from strandline.server import ServerSettings, create_app
from tests.backups.reading import open_at
from tests.quick_files import QuickFiles

DAY = 86400.0
DAYS = 35
QUIET = ServerSettings(port=0, run_schedules=False, maintain_seconds=0.0)
"""Settings with which the service changes nothing by itself."""
TABLES = """
CREATE TABLE customers (id Uint64 NOT NULL, name Utf8, city Utf8, PRIMARY KEY (id),
                        INDEX by_city GLOBAL SYNC ON (city));
CREATE TABLE orders (id Uint64 NOT NULL, customer Uint64, status Utf8, total Int64, PRIMARY KEY (id),
                     INDEX by_customer GLOBAL SYNC ON (customer) COVER (total));
CREATE TABLE `sales/eu/invoices` (id Uint64 NOT NULL, total Int64, PRIMARY KEY (id))
    WITH (PARTITION_AT_KEYS = (CUTS))
"""
CUTS = range(60, 2400, 60)
"""Keys at which the invoices are cut into shards."""


class ShopClock:
    """The clock of the machine, set back until ``advance`` has caught up."""

    def __init__(self, behind: float) -> None:
        self._behind = behind

    def now(self) -> float:
        return time.time() - self._behind

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def advance(self, seconds: float) -> None:
        self._behind = max(0.0, self._behind - seconds)


class Gate(QuickFiles):
    """Local files whose creation waits while the gate is closed, but for the next ``allowed`` files."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.open = threading.Event()
        self.open.set()
        self.waiting = threading.Event()
        self.allowed = 0

    def _create(self, path: str) -> int:
        if not self.open.is_set() and self.allowed > 0:
            self.allowed -= 1
        elif not self.open.is_set():
            self.waiting.set()
            assert self.open.wait(300)
        return super()._create(path)


@dataclass
class Shop:
    """A warehouse with its files and a token for each role."""

    db: Database
    folder: Path
    clock: ShopClock
    files: Gate
    url: str = ""
    tokens: dict[str, str] = field(default_factory=dict)

    def token(self, role: Role) -> str:
        if role not in self.tokens:
            self.tokens[role] = self.db.create_token(f"{role} token", role=role).token
        return self.tokens[role]


def open_shop(folder: Path, *, days: int = 0) -> Shop:
    """Return a new warehouse whose clock is set back by some days."""
    clock, files = ShopClock(days * DAY + 0.6 * DAY if days else 0.0), Gate(folder / "warehouse")
    db = open_at(
        folder / "warehouse",
        clock=clock,
        files=files,
        settings={"session_seconds": 1e9, "inline_rows": 50, "history_seconds": DAY},
    )
    return Shop(db, folder, clock, files)


def fill(shop: Shop, *, days: int = DAYS) -> None:
    """Take backups as schedules would: a full one each week, an increment each day."""
    db = shop.db
    db.sql(TABLES.replace("CUTS", ", ".join(map(str, CUTS))))
    cities = ["Lisbon", "Porto", "Faro", "Braga", "Évora"]
    db.table("customers").upsert(
        [{"id": i, "name": f"customer {i}", "city": cities[i % 5]} for i in range(400)]
    )
    for first in (0, *CUTS):
        db.table("sales/eu/invoices").upsert(
            [{"id": i, "total": i * 7 % 991} for i in range(first, first + 60)]
        )
    nightly = db.create_collection(
        "nightly",
        tables=["customers", "orders"],
        incremental=True,
        retention="KEEP LAST 4 FULL",
        rpo="48h",
        proved_within="7d",
    )
    elsewhere = db.create_collection(
        "invoices", tables=["sales/eu/invoices"], storage=str(shop.folder / "repository"), incremental=True
    )
    db.create_schedule("nights", "nightly", full="0 2 * * 0", incremental="0 2 * * 1-6", verify="0 5 * * *")
    rows = 1500
    db.table("orders").upsert(_orders(0, rows))
    for day in range(days):
        more = 40 + (day * 53) % 160
        db.table("orders").upsert(_orders(rows, rows + more))
        rows += more
        db.sql(f"UPDATE orders SET status = 'paid' WHERE id < {rows // 2 + day}")
        if day % 7 == 0:
            db.compact("/orders")
        nightly.backup(incremental=day % 7 != 0)
        if day % 3 == 0:
            db.table("sales/eu/invoices").upsert([{"id": i, "total": day} for i in range(day, 2400, 3)])
            elsewhere.backup(incremental=day % 21 != 0)
        if day % 14 == 10:
            nightly.verify()
        shop.clock.advance(DAY)
    elsewhere.verify(level="files")
    shop.clock.advance(10 * DAY)
    db.sql("ALTER TABLE orders ADD CHANGEFEED to_search WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON')")
    db.table("orders").upsert(_orders(rows, rows + 30))


def _orders(first: int, last: int) -> list[dict[str, object]]:
    return [
        {"id": i, "customer": i * 7919 % 400, "status": "new", "total": i % 997 + 1}
        for i in range(first, last)
    ]


@contextlib.contextmanager
def serving(shop: Shop, settings: ServerSettings | None = None) -> Iterator[str]:
    """Serve a warehouse on a free port; yield the URL."""
    app = create_app(shop.db, settings or QUIET)
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=2, lifespan="on")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        time.sleep(0.01)
    try:
        shop.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield shop.url
    finally:
        server.should_exit = True
        thread.join(30)


def wait_for_state(shop: Shop, operation_id: str, *states: str) -> None:
    """Wait until an operation is in one of these states."""
    while shop.db.operation(operation_id).state not in states:
        time.sleep(0.01)
