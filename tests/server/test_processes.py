"""Service processes: killed, stopped with SIGTERM, and many clients at once."""

from __future__ import annotations

import secrets
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs fastapi: pip install 'strandline[server]'")
pytest.importorskip("httpx", reason="needs httpx")

import httpx

import strandline
from strandline import errors
from tests.server.services import SETTINGS, Running, finished, serve_process

pytestmark = pytest.mark.slow

ROWS = 200
TABLES = 30


def many_tables(folder: Path) -> None:
    """A collection whose backup takes a while: its copies are slow."""
    with strandline.connect(folder, settings=SETTINGS, adopt=True) as db:
        for n in range(TABLES):
            db.sql(f"CREATE TABLE `many/t{n}` (k Uint64 NOT NULL, v Utf8, PRIMARY KEY (k))")
            # Random, so that it does not compress: the limit of a copy counts bytes of files.
            db.table(f"/many/t{n}").upsert([{"k": k, "v": secrets.token_hex(64)} for k in range(ROWS)])
        names = ", ".join(f"TABLE `many/t{n}`" for n in range(TABLES))
        db.sql(f"CREATE BACKUP COLLECTION many ({names}) WITH (STORAGE = '{folder.parent}/repository')")


def as_client(url: str, token: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=120.0)


def start_slow_upload(client: httpx.Client) -> tuple[str, str]:
    """Start a backup, and wait until its upload, which takes some seconds, runs; return the ids of both."""
    wanted = {"max_bytes_per_second": 100_000.0, "copies": 1}
    backup = client.post("/v1/collections/many/backups", json=wanted).json()["id"]
    while True:
        for found in client.get("/v1/operations", params={"kind": "send backup"}).json():
            assert found["state"] == "running", found
            return backup, found["id"]
        time.sleep(0.05)


def test_a_killed_service_is_carried_on_by_another(shop: tuple[Path, dict[str, str]]) -> None:
    folder, tokens = shop
    many_tables(folder)
    with serve_process(folder) as (first, url), serve_process(folder) as (_, other):
        with as_client(url, tokens["operate"]) as client, as_client(other, tokens["operate"]) as survivor:
            _, started = start_slow_upload(client)
            first.send_signal(signal.SIGKILL)
            first.wait()
            ended = finished(survivor, started)
            assert ended["state"] == "done", ended
            (backup,) = survivor.get("/v1/collections/many/backups").json()
            assert backup["rows"] == ROWS * TABLES
            checked = survivor.post("/v1/collections/many/verify", json={}).json()["id"]
            assert finished(survivor, checked)["result"]["problems"] == 0


def test_sigterm_under_load_loses_no_request_and_no_operation(shop: tuple[Path, dict[str, str]]) -> None:
    """Each request is answered completely, or refused before it is sent; an operation is carried on."""
    folder, tokens = shop
    many_tables(folder)
    stop = threading.Event()
    failures: list[str] = []
    answered: list[int] = []

    def read(url: str) -> None:
        while not stop.is_set():
            with httpx.Client(base_url=url, timeout=60) as client:
                try:
                    answer = client.post(
                        "/v1/sql",
                        json={"sql": "SELECT id FROM `sales/orders`"},
                        headers={"Authorization": f"Bearer {tokens['read']}"},
                    )
                except httpx.ConnectError:
                    return  # It does not listen any more.
                except httpx.TransportError as error:
                    failures.append(repr(error))
                    return
            if answer.status_code != 200 or len(answer.json()["rows"]) != 2:
                failures.append(answer.text)
            answered.append(answer.status_code)

    with serve_process(folder) as (service, url):
        with as_client(url, tokens["operate"]) as client, ThreadPoolExecutor(8) as pool:
            for _ in range(8):
                pool.submit(read, url)
            backup, started = start_slow_upload(client)
            with client.stream("GET", f"/v1/operations/{started}/events") as events:
                lines = events.iter_lines()
                assert any(line.startswith("data: ") for line in lines)
                service.send_signal(signal.SIGTERM)
                assert any(line == "event: closing" for line in lines)
            assert service.wait(60) == 0
            stop.set()
        assert service.stderr is not None and "Traceback" not in service.stderr.read()
    assert answered and not failures
    with strandline.connect(folder, settings=SETTINGS) as db:
        info = db.wait(started, timeout=300)
        assert info.state == "done"
        entry = db.audit(principal="operate", limit=1)[0]
        assert (entry.operation_id, entry.result) == (backup, "ok")


def test_many_clients_read_beside_a_restore_and_a_load(service: Running, tmp_path: Path) -> None:
    """The short version of ``bench/server.py``."""
    clients, requests = 200, 3
    service.db.collection("nightly").backup()
    statuses: list[int] = []
    begun = threading.Barrier(clients)

    def read(number: int) -> None:
        token = service.tokens["read"]
        with httpx.Client(
            base_url=service.url, timeout=120, headers={"Authorization": f"Bearer {token}"}
        ) as client:
            begun.wait()
            for n in range(requests):
                path: dict[str, Any] = {"path": "/sales/orders", "key": [1 + (number + n) % 2]}
                answer = client.post("/v1/tables/row", json=path)
                while answer.status_code == 429:  # All share one token.
                    time.sleep(float(answer.headers["retry-after"]))
                    answer = client.post("/v1/tables/row", json=path)
                statuses.append(answer.status_code)

    file = tmp_path / "rows.csv"
    file.write_text("id,v\n" + "\n".join(f"{n},x" for n in range(20_000)))
    with ThreadPoolExecutor(clients) as pool, service.client("admin") as admin:
        done = [pool.submit(read, number) for number in range(clients)]
        restored = admin.post("/v1/collections/nightly/restore", json={"into": "/old"}).json()["id"]
        loaded = admin.post("/v1/tables/load", json={"path": "/loaded", "files": [str(file)], "key": ["id"]})
        assert loaded.json()["read"] == 20_000
        assert finished(admin, restored)["state"] == "done"
        for each in done:
            each.result()
    assert statuses == [200] * clients * requests


def test_the_service_keeps_house(shop: tuple[Path, dict[str, str]]) -> None:
    """Runs of schedules are started, and asynchronous indexes are updated, without being asked."""
    folder, tokens = shop
    with strandline.connect(folder, settings=SETTINGS, adopt=True) as db:
        db.sql("ALTER TABLE `sales/orders` ADD INDEX later GLOBAL ASYNC ON (total)")
        db.sql("UPSERT INTO `sales/orders` (id, customer, total) VALUES (3, 'eve', 30)")
        db.create_schedule("often", "nightly", full="* * * * *")
        behind = db.describe("/sales/orders/later")
    with serve_process(folder, "--limit", "maintain_seconds=0.2") as (_, url):
        with as_client(url, tokens["operate"]) as client:
            while 'strandline_housekeeping_rounds_total{result="ok"}' not in client.get("/metrics").text:
                time.sleep(0.1)
            while client.get("/v1/describe", params={"path": "/sales/orders/later"}).json() == behind:
                time.sleep(0.1)
            while not client.get("/v1/schedules/often/runs").json():
                time.sleep(0.1)


def test_a_port_in_use_is_a_plain_error(service: Running) -> None:
    from strandline.server import ServerSettings
    from strandline.server.run import listen

    with pytest.raises(errors.Unavailable, match="cannot listen"):
        listen(ServerSettings(port=service.port))
