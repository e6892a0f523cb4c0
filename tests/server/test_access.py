"""Who may do what: tokens, roles, paths, sessions, and what is refused."""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs fastapi: pip install 'strandline[server]'")
pytest.importorskip("httpx", reason="needs httpx")

import httpx

import strandline
from strandline import errors
from strandline.api import access
from strandline.api.verbs import VERBS
from strandline.catalog import access as stored
from strandline.server import ServerSettings, sessions
from strandline.server.limits import RateLimit
from tests.quick_files import QuickFiles
from tests.server.services import SETTINGS, Running, finished, serving

ORDERS = "SELECT id FROM `sales/orders`"
HR = "SELECT * FROM `hr/salaries`"


def codes(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_without_a_token_nothing_answers_but_health(service: Running) -> None:
    with service.client(None) as client:
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
        others = {"/v1/openapi.json", "/metrics", "/v1/operations/events", "/v1/operations/x/events"}
        paths = [("GET", path) for path in others] + [
            ("POST", f"/v1/{p}") for p in ("sql", "tables/rows", "tables/row")
        ]
        for method, path in paths + [(verb.method, f"/v1{verb.path}") for verb in VERBS]:
            answer = client.request(method, path)
            # A request whose form is wrong is refused before or after its token is missed.
            assert answer.status_code == 401, (method, path, answer.text)
            assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer x",
        "Bearer sl_0000000000000000_secret",
        "Basic YTpi",
        "Bearer sl__",
        "Bearer \xff\xfe",
    ],
)
def test_a_wrong_token_is_refused(service: Running, header: str) -> None:
    with service.client(None) as client:
        assert (
            client.get("/v1/step", headers=[(b"Authorization", header.encode("latin-1"))]).status_code == 401
        )


def test_a_token_with_the_secret_of_another_is_refused(service: Running) -> None:
    _, token_id, _ = service.tokens["admin"].split("_", 2)
    _, _, secret = service.tokens["read"].split("_", 2)
    with service.client(f"sl_{token_id}_{secret}") as client:
        assert client.get("/v1/step").status_code == 401


def test_a_token_ends_when_it_expires_or_is_revoked(service: Running) -> None:
    short = service.db.create_token("short", expires=1e-3)
    with service.client(short.token) as client:
        assert client.get("/v1/step").status_code == 401
    long = service.db.create_token("long", expires=3600)
    with service.client(long.token) as client, service.client("admin") as admin:
        assert client.get("/v1/step").status_code == 200
        assert admin.delete(f"/v1/tokens/{long.id}").json()["revoked"] is not None
        assert client.get("/v1/step").status_code == 401
        assert codes(admin.delete(f"/v1/tokens/{long.id}")) == (409, "PRECONDITION_FAILED")


def test_the_catalog_has_no_token(service: Running, shop: tuple[Path, dict[str, str]]) -> None:
    folder, tokens = shop
    kept = b"".join(file.read_bytes() for file in folder.glob("catalog.sqlite*"))
    for token in tokens.values():
        _, token_id, secret = token.split("_", 2)
        assert token_id.encode() in kept and secret.encode() not in kept


def test_secrets_are_compared_in_constant_time() -> None:
    """By their structure: secrets that clients send go through ``compare_digest``, and nothing else."""
    for function in (access.recognize, sessions.check_csrf):
        tree = ast.parse(inspect.getsource(function).lstrip())
        calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert "hmac.compare_digest" in calls
        compared = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Compare)]
        assert not any(re.search("secret|hash|given|csrf", text) for text in compared), compared
    # Sessions are found by the hash of the cookie, so a comparison tells nothing about the cookie itself.
    assert "_hash(cookie)" in inspect.getsource(sessions.find_session)


@pytest.mark.parametrize(("role", "verbs"), [("read", ("operate", "admin")), ("operate", ("admin",))])
def test_a_role_may_do_only_what_it_may(service: Running, role: str, verbs: tuple[str, ...]) -> None:
    with service.client(role) as client:
        for verb in VERBS:
            if verb.role not in verbs:
                continue
            path = re.sub(r"{\w+}", "x", verb.path)
            body = {"name": "x", "collection": "x", "url": "/x", "path": "/x", "files": ["x"], "place": "/x"}
            body |= {"kind": "x", "subject": "x"}
            model = {name for name in verb.parameters if f"{{{name}}}" not in verb.path}
            given = {name: value for name, value in body.items() if name in model}
            if verb.method in ("GET", "DELETE"):
                answer = client.request(verb.method, f"/v1{path}", params=given)
            else:
                answer = client.request(verb.method, f"/v1{path}", json=given if model else None)
            assert codes(answer) == (403, "PERMISSION_DENIED"), verb.name


def test_a_token_of_some_paths_sees_nothing_else(service: Running) -> None:
    with service.client("sales") as client:
        assert [e["name"] for e in client.get("/v1/ls").json()] == ["sales"]
        assert {e["path"] for e in client.get("/v1/ls", params={"depth": "null"}).json()} >= {"/sales/orders"}
        assert not any("hr" in e["path"] for e in client.get("/v1/ls", params={"depth": "null"}).json())
        assert [e["path"] for e in client.get("/v1/overview").json()] == ["/sales"]
        assert client.get("/v1/busy").json() == {}
        assert [c["name"] for c in client.get("/v1/collections").json()] == ["nightly"]
        for path in ("/hr", "/hr/salaries", "/sales/../hr/salaries", "/salesx", "/.backups/collections"):
            answer = client.get("/v1/describe", params={"path": path})
            assert answer.status_code in (400, 403), (path, answer.text)
        for path in (
            "/collections/people",
            "/collections/people/backups",
            "/collections/nothing",
            "/status",
            "/pins",
        ):
            assert codes(client.get(f"/v1{path}")) == (403, "PERMISSION_DENIED"), path
        assert client.get("/v1/collections/nightly").status_code == 200
        assert client.get("/metrics").status_code == 403


def test_a_token_of_some_paths_operates_on_its_collections_only(service: Running) -> None:
    with service.client("sales-operate") as client, service.client("operate") as operator:
        mine = client.post("/v1/collections/nightly/backups", json={}).json()["id"]
        finished(client, mine)
        other = operator.post("/v1/collections/people/backups", json={}).json()["id"]
        finished(operator, other)
        assert codes(client.post("/v1/collections/people/backups", json={})) == (403, "PERMISSION_DENIED")
        assert [o["id"] for o in client.get("/v1/operations").json()] == [mine]
        for path in (f"/v1/operations/{other}", f"/v1/operations/{other}/events"):
            assert codes(client.get(path)) == (403, "PERMISSION_DENIED")
        for wanted in ({"tables": {"sales/orders": "hr/orders"}}, {"into": "/hr"}):
            answer = client.post("/v1/collections/nightly/restore", json=wanted)
            assert answer.status_code in (400, 403), (wanted, answer.text)
        fine = client.post("/v1/collections/nightly/restore", json={"tables": {"sales/orders": "sales/old"}})
        assert fine.status_code == 202
        finished(client, fine.json()["id"])
        assert codes(client.post("/v1/run_due")) == (403, "PERMISSION_DENIED")


def test_a_backup_of_other_tables_is_not_restored_by_a_token_of_some_paths(service: Running) -> None:
    """The collection had another table when the backup was taken."""
    service.db.sql("ALTER BACKUP COLLECTION nightly ADD TABLE `hr/salaries`")
    service.db.collection("nightly").backup()
    service.db.sql("ALTER BACKUP COLLECTION nightly DROP TABLE `hr/salaries`")
    with service.client("sales-operate") as client:
        assert client.get("/v1/collections/nightly").status_code == 200
        for wanted in ({"into": "/sales/old"}, {"tables": {"hr/salaries": "sales/salaries"}}):
            answer = client.post("/v1/collections/nightly/restore", json=wanted)
            assert codes(answer) == (403, "PERMISSION_DENIED"), wanted


@pytest.mark.parametrize(
    "query",
    [
        HR,
        "SELECT o.id FROM `sales/orders` AS o JOIN `hr/salaries` AS s ON o.customer = s.name",
        f"WITH x AS ({HR}) SELECT * FROM x",
        "SELECT id FROM `sales/orders` WHERE customer IN (SELECT name FROM `hr/salaries`)",
        "SELECT (SELECT max(salary) FROM `hr/salaries`) AS m FROM `sales/orders`",
        f"SELECT * FROM ({HR}) AS x",
        f"{ORDERS} UNION ALL SELECT salary FROM `hr/salaries`",
        "SELECT * FROM `hr/salaries` VERSION AS OF 4",
        "SELECT * FROM `hr/salaries` TIMESTAMP AS OF '2999-01-01'",
        "SELECT * FROM `hr/salaries` IN BACKUP people",
        "SELECT * FROM `sales/orders` IN BACKUP people",
        "SELECT * FROM `/hr/salaries`",
        "SELECT * FROM `sales/../hr/salaries`",
        "SELECT * FROM `/.backups/collections/people`",
        "WITH `sales/orders` AS (SELECT * FROM `hr/salaries`) SELECT * FROM `sales/orders`",
        "SELECT * FROM parquet.`/etc/passwd`",
        "SELECT * FROM csv.`/etc/passwd`",
        "SELECT * FROM text.`file:///etc/passwd`",
        "SELECT * FROM spark_catalog.default.t",
        "SELECT * FROM read_files('/etc')",
        "SELECT * FROM `sales/orders`, LATERAL (SELECT * FROM `hr/salaries`) AS x",
        "VALUES (1)",
        "TABLE `hr/salaries`",
        "EXPLAIN SELECT * FROM `sales/orders`",
        "EXPLAIN FORMATTED SELECT * FROM `hr/salaries`",
        "SHOW TABLES",
        "SHOW BACKUPS OF people",
        "DESCRIBE `hr/salaries`",
        "UPSERT INTO `sales/orders` (id) VALUES (9)",
        "DELETE FROM `sales/orders` WHERE id = 1",
        "DROP TABLE `sales/orders`",
        "CREATE TABLE `sales/x` (k Int64 NOT NULL, PRIMARY KEY (k))",
        "BACKUP nightly",
        "BEGIN",
        "EXPORT TABLE `sales/orders` TO '/tmp/x.csv'",
        "ALTER WAREHOUSE SET (HISTORY_SECONDS = 1)",
        f"{ORDERS}; DROP TABLE `sales/orders`",
        "SELECT reflect('java.lang.System', 'getenv', 'PATH')",
        "SELECT java_method('java.lang.System', 'exit', 1)",
        "SELECT `reflect`('java.lang.System', 'getenv', 'PATH') FROM `sales/orders`",
        "SELECT TRANSFORM(id) USING 'cat' FROM `sales/orders`",
        "SELECT id FROM `sales/orders` WHERE customer = '${env:PATH}'",
        "SELECT current_user()",
        "SELECT input_file_name() FROM `sales/orders`",
        "SELECT * FROM range(1000000000)",
        "SET spark.sql.ansi.enabled = false",
    ],
)
def test_sql_outside_the_role_is_refused(service: Running, query: str) -> None:
    before = service.db.step
    with service.client("sales") as client:
        answer = client.post("/v1/sql", json={"sql": query})
    assert answer.status_code in (400, 403, 422), (query, answer.text)
    assert "error" in answer.json() and "1000" not in answer.text
    assert service.db.step == before
    assert service.db.describe("/sales/orders")["rows"] == 2


@pytest.mark.parametrize(
    "query",
    [
        ORDERS,
        "SELECT o.id FROM `sales/orders` AS o JOIN `sales/customers` AS c ON o.customer = c.name",
        "WITH `hr/salaries` AS (SELECT id FROM `sales/orders`) SELECT * FROM `hr/salaries`",
        "SELECT * FROM `sales/orders` VIEW by_customer WHERE customer = 'ada'",
        "SELECT * FROM `sales/orders` VERSION AS OF 5",
        "SELECT upper(customer), sum(total) FROM `sales/orders` GROUP BY customer HAVING count(*) > 0",
    ],
)
def test_sql_inside_the_role_is_answered(service: Running, query: str) -> None:
    with service.client("sales") as client:
        answer = client.post("/v1/sql", json={"sql": query})
    assert answer.status_code == 200 and answer.json()["rows"], answer.text


@pytest.mark.parametrize("where", ["reflect('java.lang.System', 'exit', 1) = 1", "customer = '${env:PATH}'"])
def test_conditions_of_scans_call_nothing(service: Running, where: str) -> None:
    with service.client("sales") as client:
        answer = client.post("/v1/tables/rows", json={"path": "/sales/orders", "where": where})
        assert answer.status_code in (403, 422)
        assert codes(client.post("/v1/tables/rows", json={"path": "/hr/salaries"})) == (
            403,
            "PERMISSION_DENIED",
        )
        assert codes(client.post("/v1/tables/row", json={"path": "hr/salaries", "key": ["ada"]}))[0] == 403


def test_every_change_is_in_the_audit_log_with_its_result(service: Running) -> None:
    with service.client("operate") as client, service.client("admin") as admin:
        done = client.post("/v1/collections/nightly/backups", json={"copies": 2}).json()["id"]
        client.post("/v1/collections/missing/backups", json={})
        client.post("/v1/tokens", json={"name": "x", "role": "admin"})
        made = admin.post("/v1/tokens", json={"name": "robot", "role": "read", "paths": ["sales"]}).json()
        log = [
            (e["principal"], e["action"], e["target"], e["result"], e["operation_id"])
            for e in admin.get("/v1/audit", params={"limit": 4}).json()
        ]
        assert log == [
            ("admin", "Database.create_token", "robot", "ok", None),
            ("operate", "Database.create_token", "x", "PERMISSION_DENIED", None),
            ("operate", "Collection.backup", "missing", "PATH_NOT_FOUND", None),
            ("operate", "Collection.backup", "nightly", "ok", done),
        ]
        entry = admin.get("/v1/audit", params={"principal": "operate"}).json()[-1]
        assert (entry["remote"], json.loads(entry["details"])["copies"]) == ("127.0.0.1", 2)
        everything = admin.get("/v1/audit").text + admin.get("/v1/tokens").text + admin.get("/metrics").text
        for token in (*service.tokens.values(), made["token"]):
            assert token.split("_", 2)[2] not in everything
        assert codes(client.get("/v1/audit")) == (403, "PERMISSION_DENIED")


def test_the_audit_log_is_kept_for_its_time(service: Running) -> None:
    service.db.create_token("early")
    assert service.db.audit(principal="nobody") == []
    assert service.db.audit(limit=1)[0].action == "Database.create_token"
    service.db.sql("ALTER WAREHOUSE SET (AUDIT_SECONDS = 0)")
    service.db.collect()
    assert service.db.audit() == []


def test_a_change_that_is_cut_off_is_in_the_audit_log(service: Running) -> None:
    """The entry is written before the change begins."""
    with service.db._runtime.catalog.write() as tx:
        stored.add_audit(tx, principal="x", action="Collection.backup", target="nightly")
    assert service.db.audit(limit=1)[0].result is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "a\r\nb"}, "cannot be"),
        ({"name": ""}, "cannot be"),
        ({"name": "x", "role": "root"}, "no role"),
        ({"name": "x", "role": "admin", "paths": ["/a"]}, "cannot be limited"),
        ({"name": "x", "paths": []}, "paths cannot be"),
        ({"name": "x", "expires": -1}, "cannot expire"),
    ],
)
def test_a_token_without_sense_is_not_created(service: Running, given: dict, message: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        service.db.create_token(**given)


# --- sessions and forms -------------------------------------------------------------------------------


@pytest.fixture
def browser(service: Running) -> Iterator[httpx.Client]:
    """A client with the cookie of a session of an operator."""
    found = sessions.create_session(service.db, service.tokens["operate"], 3600)
    assert found is not None
    with service.client(None, cookies={sessions.COOKIE: found[1]}) as client:
        yield client


def test_a_session_reads_and_changes_only_with_the_token_of_its_pages(browser: httpx.Client) -> None:
    assert browser.get("/v1/ls").status_code == 200
    path = "/v1/collections/nightly/backups"
    assert codes(browser.post(path, json={})) == (403, "PERMISSION_DENIED")
    assert codes(browser.post(path, json={}, headers={sessions.CSRF_HEADER: "x"})) == (
        403,
        "PERMISSION_DENIED",
    )
    cookie = browser.cookies[sessions.COOKIE]
    good = {sessions.CSRF_HEADER: sessions.csrf_token(cookie)}
    for forged in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert codes(browser.post(path, json={}, headers=good | forged)) == (403, "PERMISSION_DENIED")
    assert browser.post(path, json={}, headers=good).status_code == 202


def test_a_session_ends_with_its_token_and_at_logout(service: Running, browser: httpx.Client) -> None:
    cookie = browser.cookies[sessions.COOKIE]
    sessions.end_session(service.db, cookie)
    assert browser.get("/v1/ls").status_code == 401
    made = service.db.create_token("web")
    found = sessions.create_session(service.db, made.token, 3600)
    assert found is not None
    with service.client(None, cookies={sessions.COOKIE: found[1]}) as client:
        assert client.get("/v1/ls").status_code == 200
        service.db.revoke_token(made.id)
        assert client.get("/v1/ls").status_code == 401


def test_a_planted_cookie_is_worthless(service: Running) -> None:
    """Session fixation: the cookie of a session comes from the service alone, and is new at each login."""
    planted = "planted"
    with service.client(None, cookies={sessions.COOKIE: planted}) as client:
        assert client.get("/v1/ls").status_code == 401
    made = [sessions.create_session(service.db, service.tokens["read"], 3600) for _ in range(2)]
    assert [entry.action for entry in service.db.audit(limit=2)] == ["login", "login"]
    cookies = {found[1] for found in made if found is not None}
    assert len(cookies) == 2 and planted not in cookies
    assert sessions.create_session(service.db, "sl_x_y", 3600) is None


def test_a_session_expires(service: Running) -> None:
    found = sessions.create_session(service.db, service.tokens["read"], 0)
    assert found is not None and sessions.find_session(service.db, found[1]) is None


# --- bodies, rates and headers ------------------------------------------------------------------------


def test_a_large_body_is_refused_whatever_its_headers_say(service: Running) -> None:
    big = b" " * (service.service.settings.max_body_bytes + 1)

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(big), 65536):
            yield big[start : start + 65536]

    for content in (big, chunks()):
        with service.client("admin") as client, contextlib.suppress(httpx.WriteError):
            assert client.post("/v1/sql", content=content).status_code == 413
    with service.client("admin") as client:
        assert client.get("/v1/step").status_code == 200


def raw(service: Running, data: bytes) -> bytes:
    """What the service answers to bytes, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
        connection.sendall(data)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                found += part
        return found


def test_a_slow_body_is_refused(service: Running) -> None:
    said = raw(service, b"POST /v1/sql HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert said.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_slow_headers_end_the_connection(service: Running, data: bytes) -> None:
    assert raw(service, data) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"GET /v1/ls HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
        b"GET /v1/ls HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"POST /v1/sql HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/sql HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
    ids=["nul", "two hosts", "two lengths", "negative length", "tls"],
)
def test_malformed_requests_are_refused(service: Running, data: bytes) -> None:
    said = raw(service, data)
    assert said == b"" or said.startswith(b"HTTP/1.1 400 "), said[:200]


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/../../etc/passwd",
        "/static/%2e%2e%2fapp.py",
        "//etc/passwd",
        "/v1/collections/..%2f..%2fetc",
    ],
)
def test_paths_do_not_leave_the_service(service: Running, path: str) -> None:
    said = raw(
        service,
        b"GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n"
        % (path.encode(), service.tokens["admin"].encode()),
    )
    assert re.match(rb"HTTP/1.1 (400|404) ", said), said[:200]
    assert b"root:" not in said


def test_names_with_line_breaks_forge_neither_headers_nor_log_lines(
    service: Running, caplog: pytest.LogCaptureFixture
) -> None:
    evil = "a\r\nSet-Cookie: x=1\r\n\r\nFORGED"
    with service.client("operate") as client:
        for answer in (
            client.get("/v1/describe", params={"path": evil}),
            client.get(
                f"/v1/collections/{evil.replace(chr(13), '%0D').replace(chr(10), '%0A').replace(' ', '%20')}"
            ),
            client.post("/v1/collections/nightly/backups", json={evil: 1}),
            client.post("/v1/schedules", json={"name": evil, "collection": "nightly"}),
        ):
            assert answer.status_code in (400, 404)
            assert "set-cookie" not in answer.headers and answer.json()["error"]
    with service.client(None) as client:
        client.get("/v1/ls", headers={"Authorization": "Bearer x"})
    assert not any("\n" in record.getMessage() for record in caplog.records)


def test_wrong_tokens_are_limited_per_address(service: Running) -> None:
    with service.client("sl_x_wrong") as client:
        statuses = [client.get("/v1/step").status_code for _ in range(30)]
        assert set(statuses) == {401, 429} and statuses == sorted(statuses)
        limited = client.get("/v1/step")
        assert int(limited.headers["retry-after"]) >= 1
    assert "strandline_http_failed_logins_total" in service.service.metrics.render()


def test_rates_are_limited_per_token() -> None:
    limit = RateLimit(0.001, 2)
    limit.check("a")
    limit.check("a")
    with pytest.raises(errors.TooManyRequests) as raised:
        limit.check("a")
    assert raised.value.seconds >= 1
    limit.check("b")


def test_every_answer_has_the_security_headers(service: Running) -> None:
    with service.client("read") as client:
        for path in ("/healthz", "/v1/ls", "/nothing", "/v1/describe?path=/nothing"):
            headers = client.get(path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy
            assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
            assert "server" not in headers


def test_an_unexpected_error_tells_nothing(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret at line 7")

    monkeypatch.setattr("strandline.server.verbs._invoke", fail)
    with service.client("read") as client:
        answer = client.get("/v1/ls")
    assert codes(answer) == (500, "INTERNAL")
    assert "secret" not in answer.text and "Traceback" not in answer.text


def test_the_client_behind_a_proxy_is_the_one_that_the_proxy_saw(shop: tuple[Path, dict[str, str]]) -> None:
    folder, tokens = shop
    settings = ServerSettings(port=0, maintain_seconds=0, behind_proxy=True, drain_seconds=0)
    with strandline.connect(folder, files=QuickFiles(str(folder)), settings=SETTINGS, adopt=True) as db:
        with serving(db, settings) as running:
            with running.client(tokens["operate"]) as client:
                client.post("/v1/schedules/x/pause", headers={"X-Forwarded-For": "6.6.6.6, 10.0.0.9"})
            assert db.audit(limit=1)[0].remote == "10.0.0.9"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_the_service_listens_elsewhere_only_with_tls(host: str) -> None:
    with pytest.raises(errors.PreconditionFailed, match="without TLS"):
        ServerSettings(host=host)
    assert ServerSettings(host=host, behind_proxy=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    assert ServerSettings(host=host).is_loopback
