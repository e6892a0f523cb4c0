"""The client: ``connect`` with a URL, and commands with ``--server``, as users type them."""

from __future__ import annotations

import copy
import json
import ssl
import sys
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs fastapi: pip install 'strandline[server]'")
pytest.importorskip("httpx", reason="needs httpx")

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import strandline
from strandline import errors
from strandline.api.backup_info import BackupInfo
from strandline.api.remote import structure
from strandline.cli import main
from strandline.json_values import plain
from strandline.server import ServerSettings
from tests.server.services import SETTINGS, Running, serving


def test_a_service_is_used_like_a_database(service: Running) -> None:
    db: Any = strandline.connect(service.url, token=service.tokens["admin"])
    assert [entry.name for entry in db.ls("/sales")] == ["customers", "orders"]
    assert [entry.path for entry in db.ls(depth=None)] == [e.path for e in service.db.ls(depth=None)]
    assert db.describe("/sales/orders") == plain(service.db.describe("/sales/orders"))
    assert db.status().level == service.db.status().level
    assert db.step == service.db.step
    done = db.collection("nightly").backup(full_if_needed=True)
    assert (done.state, done.kind) == ("done", "backup")
    assert done.shards == service.db.operation(done.id).shards and done.stages
    (backup,) = db.collection("nightly").backups()
    assert backup == service.db.collection("nightly").backups()[0]
    seen: list[str] = []
    started = db.collection("nightly").restore(tables={"sales/orders": "sales/old"}, wait=False)
    assert db.wait(started.id, timeout=60, on_progress=lambda info: seen.append(info.id)).state == "done"
    assert seen[-1] == started.id
    assert db.sql("SELECT id FROM `sales/old` ORDER BY id").rows() == [(1,), (2,)]
    assert db.table("/sales/orders").get(2)["customer"] == "bob"
    assert db.table("/sales/orders").scan(["id"], "id > :a", params={"a": 1}).rows() == [(2,)]
    assert db.verify("nightly").result["problems"] == 0
    assert db.create_schedule("n", "nightly", full="0 2 * * *").info() == service.db.schedule("n").info()
    assert db.schedule("n").alter(timezone="Europe/Berlin").timezone == "Europe/Berlin"
    assert [found.name for found in db.collections()] == ["nightly", "people"]
    made = db.create_collection("more", ["sales/customers"], storage="cluster")
    assert made.info() == service.db.collection("more").info()
    assert db.forget(done.id) == 1
    assert "strandline_http_requests_total" in db.metrics()
    assert db.tokens() == service.db.tokens() and db.audit(limit=1)[0].principal == "admin"


def test_its_methods_are_completed(service: Running) -> None:
    assert {"backup", "restore", "verify"} <= set(dir(service.remote().collection("nightly")))
    assert {"ls", "status", "sql", "collection"} <= set(dir(copy.copy(service.remote())))


def test_errors_arrive_as_they_are(service: Running) -> None:
    db = service.remote("operate")
    with pytest.raises(errors.PathNotFound, match="there is no backup collection 'nothing'") as raised:
        db.collection("nothing").backup()
    assert raised.value.hint
    with pytest.raises(errors.PermissionDenied):
        db.create_token("x")
    with pytest.raises(errors.InvalidArgument, match="does not take"):
        db.collection("nightly").backup(incrementl=True)
    done = db.collection("nightly").backup()
    with pytest.raises(errors.AlreadyExists):
        db.collection("nightly").restore()
    with pytest.raises(errors.PreconditionFailed):
        db.cancel(done.id)


@pytest.mark.parametrize("name", ["create_table", "stream", "transaction", "files", "spark", "_runtime"])
def test_what_a_service_does_not_offer_is_said(service: Running, name: str) -> None:
    with pytest.raises(errors.Unsupported, match="not available over the service"):
        getattr(service.remote(), name)


@pytest.mark.parametrize(
    ("url", "token", "error"),
    [
        ("http://backup.example.org", "sl_x_y", errors.InvalidArgument),
        ("https://", "sl_x_y", errors.InvalidArgument),
        ("ftp://x", "sl_x_y", errors.InvalidArgument),
        ("https://x", None, errors.Unauthenticated),
        ("https://x", "a\r\nHost: evil", errors.Unauthenticated),
        ("http://127.0.0.1:1", "sl_x_y", errors.Unavailable),
    ],
)
def test_a_service_that_cannot_be_used_is_a_plain_error(url: str, token: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        strandline.RemoteDatabase(url, token).ls()


def test_a_result_survives_its_way(service: Running) -> None:
    backup = service.db.collection("nightly").backup()
    assert structure(BackupInfo, json.loads(json.dumps(plain(backup)))) == backup
    status = service.db.status()
    assert structure(type(status), json.loads(json.dumps(plain(status)))) == status


@pytest.fixture
def at_service(service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    monkeypatch.chdir(tmp_path)
    for name in ("STRANDLINE_WAREHOUSE", "STRANDLINE_CATALOG", "STRANDLINE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STRANDLINE_SERVER", service.url)
    monkeypatch.setenv("STRANDLINE_TOKEN", service.tokens["admin"])
    return service


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(args)
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.usefixtures("at_service")
def test_commands_are_sent_to_the_service(capsys: pytest.CaptureFixture[str]) -> None:
    assert "orders" in run(capsys, "ls", "/sales")[1]
    assert "salaries" in run(capsys, "tree")[1]
    code, out, _ = run(capsys, "backup", "nightly", "--full-if-needed", "--json")
    operation = json.loads(out)
    assert (code, operation["state"]) == (0, "done")
    for words in (
        ("verify", "nightly"),
        ("restore", "nightly", "--table", "sales/orders=sales/old"),
        ("backup", "nightly", "--incremental"),
        ("compact-backups", "nightly"),
        ("prune", "nightly", "--keep-last", "1"),
        ("operations", "list"),
        ("operations", "get", operation["id"]),
        ("operations", "wait", operation["id"]),
        ("schedules", "create", "n", "nightly", "--full", "0 2 * * *"),
        ("schedules", "list"),
        ("describe", "sales/orders"),
        ("history", "sales/orders"),
        ("check", "sales/orders"),
        ("check", "--collection", "nightly"),
        ("maintain",),
        ("metrics",),
        ("token", "list"),
        ("audit", "--limit", "3"),
    ):
        code, out, err = run(capsys, *words)
        assert code == 0, (words, out, err)
    code, out, _ = run(capsys, "sql", "SELECT id, total FROM `sales/old` ORDER BY id", "--json")
    assert json.loads(out)["rows"] == [[1, "10.50"], [2, "20.00"]]
    assert run(capsys, "status")[0] in (0, 1, 2)


@pytest.mark.usefixtures("at_service")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("sql", "DROP TABLE `sales/orders`"), 18),
        (("sql", "UPSERT INTO `sales/orders` (id) VALUES (9)"), 18),
        (("bin",), 16),
        (("check",), 16),
        (("export", "sales/orders", "x.csv"), 16),
        (("config", "set", "audit_seconds", "1"), 16),
        (("attach", "/x"), 16),
        (("drop-backup", "nightly", "x"), 16),
        (("serve",), 16),
        (("--server", "http://127.0.0.1:1", "-w", "x", "ls"), 7),
        (("--token-file", "missing", "ls"), 15),
    ],
)
def test_other_commands_are_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int
) -> None:
    found, out, err = run(capsys, *words)
    assert (found, out) == (code, ""), err
    assert "Traceback" not in err and "hint:" in err


def test_a_token_file_is_read(at_service: Running, capsys: pytest.CaptureFixture[str]) -> None:
    Path("token").write_text(at_service.tokens["sales"] + "\n")
    said = run(capsys, "ls", "--token-file", "token")[1]
    assert "sales" in said and "hr" not in said


def certificate(folder: Path) -> tuple[str, str]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(secret)
    return str(folder / "cert.pem"), str(folder / "key.pem")


def test_a_service_with_tls_is_used_if_its_certificate_is_trusted(
    shop: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, tokens = shop
    cert, key = certificate(tmp_path)
    settings = ServerSettings(port=0, tls_cert=cert, tls_key=key, maintain_seconds=0, drain_seconds=0)
    with strandline.connect(folder, settings=SETTINGS, adopt=True) as db, serving(db, settings) as running:
        url = f"https://127.0.0.1:{running.port}"
        remote = strandline.RemoteDatabase(url, tokens["read"])
        with pytest.raises(errors.Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            remote.ls()
        monkeypatch.setenv("SSL_CERT_FILE", cert)
        assert [entry.name for entry in remote.ls("/sales")] == ["customers", "orders"]
        with httpx.Client(base_url=url, verify=ssl.create_default_context(cafile=cert)) as client:
            assert "max-age" in client.get("/healthz").headers["strict-transport-security"]


def test_without_the_extra_the_command_says_what_to_install(
    shop: tuple[Path, dict[str, str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("strandline.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    code, _, err = run(capsys, "-w", str(shop[0]), "serve")
    assert code == 15 and "pip install 'strandline[server]'" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--host", "0.0.0.0"), "does not listen on 0.0.0.0 without TLS"),
        (("--tls-cert", "x"), "TLS needs a certificate and its key"),
        (("--tls-cert", "x", "--tls-key", "y"), "the file x cannot be read"),
        (("--limit", "sql_second=1"), "no limit 'sql_second'"),
        (("--limit", "sql_seconds=x"), "cannot be 'x'"),
        (("--port", "70000"), "port cannot be 70000"),
    ],
)
def test_serve_refuses_what_makes_no_sense(
    shop: tuple[Path, dict[str, str]],
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    message: str,
) -> None:
    code, _, err = run(capsys, "-w", str(shop[0]), "serve", *words)
    assert code in (6, 7) and message in err and "hint:" in err
