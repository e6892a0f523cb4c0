"""The HTTP API: each method of the Python API, its types, operations and their events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs fastapi: pip install 'strandline[server]'")
pytest.importorskip("httpx", reason="needs httpx")

import pyarrow as pa

import strandline
from strandline.api.verbs import VERBS
from tests.server.services import Running, finished


def test_every_method_of_the_python_api_has_a_route_or_a_reason() -> None:
    left_out = {
        "Database": {
            *(
                "sql",
                "table",
                "create_table",
                "files",
                "transaction",
                "spark",
                "stream",
                "collection",
                "schedule",
            ),
            *("run_schedules", "run_alarms", "wait", "verify", "repair", "metrics", "close"),
        },
        "Collection": {"open", "repair"},
        "Schedule": set(),
    }
    offered = {verb.name for verb in VERBS}
    for kind, without in left_out.items():
        for name in vars(getattr(strandline, kind)):
            if not name.startswith("_") and name not in without:
                assert f"{kind}.{name}" in offered, f"{kind}.{name} has no route"


def test_the_document_describes_every_route_and_every_status(service: Running) -> None:
    with service.client("read") as client:
        document = client.get("/v1/openapi.json").json()
    described = {
        (path, method): operation
        for path, of in document["paths"].items()
        for method, operation in of.items()
    }
    for verb in VERBS:
        operation = described[f"/v1{verb.path}", verb.method.lower()]
        assert operation["summary"], verb
        assert {"400", "401", "403", "404", "409", "413", "429", "503"} <= operation["responses"].keys()
        assert ("202" in operation["responses"]) == verb.starts
    assert document["security"] == [{"token": []}, {"session": []}]
    assert document["paths"]["/healthz"]["get"]["security"] == []
    restore = document["components"]["schemas"]["CollectionRestoreRequest"]["properties"]
    assert restore["replace"]["description"].startswith("Replace existing tables")
    assert "tables" in restore and "wait" not in restore


def test_paths_are_listed_and_described(service: Running) -> None:
    with service.client("read") as client:
        entries = client.get("/v1/ls", params={"path": "/sales"}).json()
        assert entries == [
            {"name": "customers", "type": "table", "path": "/sales/customers"},
            {"name": "orders", "type": "table", "path": "/sales/orders"},
        ]
        assert len(client.get("/v1/ls", params={"depth": "null"}).json()) > len(entries)
        assert client.get("/v1/describe", params={"path": "/sales/orders"}).json()["rows"] == 2
        assert client.get("/v1/status").json()["level"] == "critical"
        missing = client.get("/v1/describe", params={"path": "/sales/order"})
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "PATH_NOT_FOUND")
        assert "orders" in missing.json()["error"]["hint"]


def test_a_backup_is_an_operation_that_can_be_followed(service: Running) -> None:
    with service.client("operate") as client:
        started = client.post("/v1/collections/nightly/backups", json={"full_if_needed": True})
        assert started.status_code == 202
        ended = finished(client, started.json()["id"])
        assert ended["state"] == "done"
        (backup,) = client.get("/v1/collections/nightly/backups").json()
        assert backup["name"] == ended["result"]["backup"] and backup["tables"] == ["/sales/orders"]
        started = client.post(
            "/v1/collections/nightly/restore",
            json={"tables": {"sales/orders": "sales/before"}, "verify": "data"},
        )
        assert finished(client, started.json()["id"])["result"]["tables"] == ["/sales/before"]
        rows = client.post("/v1/sql", json={"sql": "SELECT id, total FROM `sales/before` ORDER BY id"}).json()
        assert rows["rows"] == [[1, "10.50"], [2, "20.00"]]
        again = client.post(
            "/v1/collections/nightly/restore", json={"tables": {"sales/orders": "sales/before"}}
        )
        assert (again.status_code, again.json()["error"]["code"]) == (409, "ALREADY_EXISTS")
        for name, wanted in {"verify": {}, "drill": {}, "prune": {"keep": "KEEP LAST 1 FULL"}}.items():
            started = client.post(f"/v1/collections/nightly/{name}", json=wanted)
            assert started.status_code == 202, started.text
            assert finished(client, started.json()["id"])["state"] == "done", name
        assert (
            client.post("/v1/collections/nightly/plan_restore", json={"into": "/x"}).json()["tables"][0][
                "rows"
            ]
            == 2
        )
        gone = client.delete(f"/v1/collections/nightly/backups/{backup['name']}")
        assert gone.status_code == 202 and finished(client, gone.json()["id"])["state"] == "done"
        assert client.get("/v1/collections/nightly/backups").json() == []


def test_the_feed_has_the_operations_of_all(service: Running) -> None:
    with service.client("operate") as client, client.stream("GET", "/v1/operations/events") as events:
        lines = events.iter_lines()
        assert next(lines) == "retry: 1000"
        started = service.db.collection("nightly").backup(wait=False).id
        data = next(line for line in lines if line.startswith("data: ") and started in line)
        assert json.loads(data[6:])["kind"] == "backup"


def test_an_operation_is_listed_cancelled_and_forgotten(service: Running) -> None:
    with service.client("operate") as client:
        done = client.post("/v1/collections/nightly/backups", json={}).json()["id"]
        finished(client, done)
        assert [o["id"] for o in client.get("/v1/operations", params={"kind": "backup"}).json()] == [done]
        assert client.post(f"/v1/operations/{done}/cancel").json()["error"]["code"] == "PRECONDITION_FAILED"
        assert client.get(f"/v1/operations/{done}/shards", params={"limit": 5}).json()
        assert client.get(f"/v1/operations/{done}/stages").json()
        assert client.delete(f"/v1/operations/{done}").json() == 1
        assert client.get(f"/v1/operations/{done}").status_code == 404
        assert client.get(f"/v1/operations/{done}/events").status_code == 404


def test_schedules_are_created_changed_and_dropped(service: Running) -> None:
    with service.client("operate") as client:
        made = client.post("/v1/schedules", json={"name": "n", "collection": "nightly", "full": "0 2 * * *"})
        assert made.json()["next_task"] == "full"
        changed = client.patch(
            "/v1/schedules/n", json={"timezone": "Europe/Berlin", "reset": ["full"], "drill": "0 5 * * *"}
        )
        assert (changed.json()["full"], changed.json()["next_task"]) == (None, "drill")
        client.post("/v1/schedules/n/pause")
        assert client.get("/v1/schedules/n").json()["paused"]
        assert client.get("/v1/schedules/n/runs").json() == []
        assert client.delete("/v1/schedules/n").status_code == 200
        assert client.get("/v1/schedules").json() == []


def test_alarms_are_raised_and_acknowledged_by_the_client(service: Running) -> None:
    with service.client("operate") as client:
        assert client.post("/v1/alarms/check").status_code == 200
        raised = client.get("/v1/alarms").json()
        assert {alarm["subject"] for alarm in raised} >= {"nightly", "people"}
        about = {name: raised[0][name] for name in ("kind", "subject")}
        forged = client.post("/v1/alarms/acknowledge", json={**about, "by": "root"})
        assert forged.status_code == 400
        answer = client.post("/v1/alarms/acknowledge", json=about)
        assert (answer.status_code, answer.json()["acknowledged_by"]) == (200, "operate")
        missing = client.post("/v1/alarms/acknowledge", json={**about, "subject": "nothing"})
        assert missing.status_code == 404
        assert client.post("/v1/alarm_channels/ops/test").status_code == 403
    with service.client("read") as client:
        assert client.post("/v1/alarms/acknowledge", json=about).status_code == 403
    assert service.remote().alarms()[0].subject
    assert service.remote("operate").acknowledge_alarm(**about).acknowledged_by == "operate"


def test_rows_are_json_or_arrow(service: Running) -> None:
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    with service.client("read") as client:
        query = {
            "sql": "SELECT customer, count(*) AS n FROM `sales/orders` WHERE id > :least GROUP BY customer",
            "params": {"least": 1},
        }
        assert client.post("/v1/sql", json=query).json()["rows"] == [["bob", 1]]
        stream = client.post("/v1/sql", json=query, headers=arrow)
        assert pa.ipc.open_stream(stream.content).read_all().to_pylist() == [{"customer": "bob", "n": 1}]
        few = client.post("/v1/sql", json={"sql": "SELECT id FROM `sales/orders`", "max_rows": 1}).json()
        assert (len(few["rows"]), few["truncated"]) == (1, True)
        rows = client.post(
            "/v1/tables/rows", json={"path": "/sales/orders", "where": "customer = 'ada'"}
        ).json()
        assert rows["rows"] == [[1, "ada", "10.50"]]
        assert (
            client.post("/v1/tables/row", json={"path": "/sales/orders", "key": [2]}).json()["row"][
                "customer"
            ]
            == "bob"
        )
        assert client.post("/v1/tables/row", json={"path": "/sales/orders", "key": [9]}).json() == {
            "row": None
        }


def test_a_query_that_takes_too_long_is_ended(service: Running) -> None:
    product = ", ".join(f"`sales/orders` AS t{n}" for n in range(1, 45))
    with service.client("read") as client:
        answer = client.post("/v1/sql", json={"sql": f"SELECT count(*) FROM {product}", "seconds": 0.5})
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "TIMEOUT")
        assert client.post("/v1/sql", json={"sql": "SELECT 1 AS one"}).json()["rows"] == [[1]]


def test_load_and_export_are_for_admins(service: Running, tmp_path: Path) -> None:
    place = str(tmp_path / "orders.csv")
    with service.client("admin") as client:
        assert (
            client.post("/v1/tables/export", json={"place": place, "table": "sales/orders"}).json()["rows"]
            == 2
        )
        loaded = client.post("/v1/tables/load", json={"path": "copy", "files": [place], "key": ["id"]})
        assert loaded.json()["read"] == 2
    with service.client("operate") as client:
        refused = client.post(
            "/v1/tables/load", json={"path": "copy", "files": ["/etc/passwd"], "key": ["k"]}
        )
        assert refused.status_code == 403


def test_a_body_without_required_fields_may_be_left_out(service: Running) -> None:
    with service.client("operate") as client:
        assert (
            finished(client, client.post("/v1/collections/nightly/backups").json()["id"])["state"] == "done"
        )


def test_a_wrong_argument_is_named(service: Running) -> None:
    with service.client("operate") as client:
        said = client.post("/v1/collections/nightly/backups", json={"incrementl": True}).json()["error"]
        assert (said["code"], said["status"]) == ("INVALID_ARGUMENT", 400)
        assert "incrementl" in said["message"]


def test_metrics_have_requests_by_route(service: Running) -> None:
    with service.client("read") as client:
        client.get("/v1/describe", params={"path": "/secret/path"})
        text = client.get("/metrics").text
    assert 'strandline_http_requests_total{method="GET",route="/v1/describe",status="404"} 1.0' in text
    assert "strandline_http_request_seconds_bucket" in text
    assert "/secret/path" not in text
