"""The pages of the console as a reader without scripts meets them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import httpx
import pytest

from strandline.errors import StrandlineError
from strandline.server import ServerSettings
from strandline.server.console import views
from strandline.settings import Settings
from tests.console.conftest import LogIn
from tests.console.reading import Page, get, page_of, submit
from tests.console.shop import QUIET, Shop, serving, wait_for_state


def pages_of(shop: Shop) -> list[str]:
    """The paths of all pages."""
    backup = shop.db.collection("nightly").backups()[-1].name
    return [
        "/",
        "/collections/nightly",
        "/collections/invoices",
        f"/collections/nightly/backups/{backup}",
        f"/collections/nightly/backups/{backup}/restore",
        "/operations",
        f"/operations/{shop.db.operations()[-1].id}",
        "/tables",
        "/tables/sales/eu",
        "/tables/orders",
        "/query",
        "/schedules",
        "/schedules/nights",
        "/activity",
        "/tokens",
        "/audit",
        "/settings",
    ]


def test_every_page_has_landmarks_one_heading_and_nothing_inside_that_the_policy_refuses(
    shop: Shop, log_in: LogIn
) -> None:
    client = log_in(shop)
    for path in ["/login", *pages_of(shop)]:
        page = get(client, path)
        names = [tag for tag, _ in page.tags]
        assert (names.count("h1"), names.count("main")) == (1, 1), path
        assert page.tags[0] == ("html", {"lang": "en"})
        assert all(url.startswith("/static/") for url in re.findall(r'(?:src)="([^"]+)"', page.html)), path
    policy = client.get("/").headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy


def test_every_link_of_every_page_leads_somewhere(shop: Shop, log_in: LogIn) -> None:
    client, seen = log_in(shop), set()
    todo = pages_of(shop)
    while todo:
        path = todo.pop()
        if path in seen or path.startswith(("#", "?")) or path == "/metrics":
            continue
        seen.add(path)
        if path.count("/backups/") and len(seen) > 60:
            continue
        todo += get(client, path).links
    assert "/tables/sales/eu/invoices" in seen


def test_files_of_the_pages_come_from_the_package(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop)
    for name in ("console.css", "console.js", "htmx.min.js", "sse.min.js", "mark.svg"):
        assert client.get(f"/static/{name}").status_code == 200
        assert "https://" not in client.get(f"/static/{name}").text.replace("https://htmx.org", "")
    assert client.get("/static/../views.py").status_code == 404


# --- logging in -------------------------------------------------------------------------------------------


@pytest.fixture
def visitor(empty_shop: Shop) -> Iterator[httpx.Client]:
    with serving(empty_shop) as url, httpx.Client(base_url=url) as client:
        yield client


def try_token(client: httpx.Client, token: str, **more: str) -> httpx.Response:
    return client.post("/login", data={"token": token, **more})


def test_a_page_asks_for_a_login_and_comes_back(empty_shop: Shop, visitor: httpx.Client) -> None:
    answer = visitor.get("/tables?page=2")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Ftables%3Fpage%3D2")
    page = page_of(visitor.get(answer.headers["location"]))
    answer = submit(visitor, page, "Log in", token=empty_shop.token("read"))
    assert (answer.status_code, answer.headers["location"]) == (303, "/tables?page=2")
    assert "httponly" in answer.headers["set-cookie"].lower()


@pytest.mark.parametrize("place", ["//evil.example", "https://evil.example", "/\\evil.example", "", "x"])
def test_a_login_does_not_lead_to_another_site(empty_shop: Shop, visitor: httpx.Client, place: str) -> None:
    answer = try_token(visitor, empty_shop.token("read"), next=place)
    assert answer.headers["location"] == "/"


def test_a_token_that_is_refused_is_told_why(empty_shop: Shop, visitor: httpx.Client) -> None:
    expired = empty_shop.db.create_token("old", expires=0.001)
    revoked = empty_shop.db.create_token("stolen")
    empty_shop.db.revoke_token(revoked.id)
    for token, said in (
        ("sl_0_wrong", "not known"),
        ("", "not known"),
        (f"{expired.token}x", "not known"),
        (expired.token, "expired at 20"),
        (revoked.token, "revoked at 20"),
    ):
        answer = try_token(visitor, token)
        assert answer.status_code == 401
        assert said in page_of(answer).text
        assert "set-cookie" not in answer.headers
    assert visitor.get("/").status_code == 303


def test_too_many_wrong_tokens_are_stopped(empty_shop: Shop) -> None:
    settings = ServerSettings(port=0, run_schedules=False, maintain_seconds=0.0, failed_logins_per_minute=2)
    with serving(empty_shop, settings) as url, httpx.Client(base_url=url) as client:
        answers = [try_token(client, "wrong") for _ in range(4)]
    assert answers[-1].status_code == 429
    assert "Retry-After" in answers[-1].headers
    assert "rate limit" in page_of(answers[-1]).text


def test_a_session_ends_with_its_token_and_with_the_log_out(empty_shop: Shop, visitor: httpx.Client) -> None:
    token = empty_shop.db.create_token("short", role="operate")
    try_token(visitor, token.token)
    assert visitor.get("/").status_code == 200
    empty_shop.db.revoke_token(token.id)
    answer = visitor.get("/")
    assert answer.headers["location"] == "/login?next=%2F&ended=1"
    assert "Your session has ended" in page_of(visitor.get(answer.headers["location"])).text
    try_token(visitor, empty_shop.token("read"))
    assert submit(visitor, get(visitor, "/"), "Log out").headers["location"] == "/login"
    assert visitor.get("/").status_code == 303


def test_another_site_can_neither_log_in_nor_send_a_form(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop)
    elsewhere = {"Origin": "https://evil.example"}
    assert client.post("/login", data={"token": shop.token("read")}, headers=elsewhere).status_code == 403
    page = get(client, "/collections/nightly")
    form = page.form("Full backup")
    before = len(shop.db.operations())
    assert client.post(form.action, data=form.fields, headers=elsewhere).status_code == 403
    assert client.post(form.action, data={"kind": "full"}).status_code == 403
    assert client.post(form.action, data={**form.fields, "csrf_token": "x"}).status_code == 403
    assert len(shop.db.operations()) == before


# --- roles ------------------------------------------------------------------------------------------------


def test_a_reader_sees_no_button_and_may_send_no_form(shop: Shop, log_in: LogIn) -> None:
    operator, reader = get(log_in(shop, "operate"), "/collections/nightly"), log_in(shop, "read")
    page = get(reader, "/collections/nightly")
    assert "Full backup" in operator.labels()
    assert set(page.labels()) <= {"Log out", "Preview"}
    backup = shop.db.collection("nightly").backups()[-1].name
    csrf = {"csrf_token": page.form("Log out").fields["csrf_token"]}
    operation = shop.db.operations()[-1].id
    before = len(shop.db.operations())
    for path in (
        "/collections/nightly/backup",
        f"/collections/nightly/backups/{backup}/restore",
        f"/operations/{operation}/cancel",
    ):
        answer = reader.post(path, data=csrf)
        assert answer.status_code == 403
        assert "needs the role operate" in page_of(answer).text
    assert len(shop.db.operations()) == before
    refused = {(entry.action, entry.result) for entry in shop.db.audit()}
    assert ("Collection.backup", "PERMISSION_DENIED") in refused
    for path in ("/tokens", "/audit", "/settings"):
        assert "Not allowed" in get(reader, path, 403).text
        assert path not in page.links


def test_a_token_for_some_paths_sees_those(shop: Shop, log_in: LogIn) -> None:
    shop.tokens["read"] = shop.db.create_token("sales", role="read", paths=["/sales"]).token
    client = log_in(shop, "read")
    overview = get(client, "/")
    assert "limited to some paths" in overview.text
    assert "invoices" in overview.text
    assert "nightly" not in overview.text
    assert "/tables/sales" in get(client, "/tables").links
    assert "/orders" not in get(client, "/tables").html
    assert get(client, "/collections/invoices").text.count("full") > 0
    for path in ("/collections/nightly", "/tables/orders", "/activity"):
        get(client, path, 403)
    page = submit(client, get(client, "/query"), "Run", sql="SELECT * FROM orders")
    assert "does not allow the path /orders" in page_of(page).text


# --- collections and restores -----------------------------------------------------------------------------


def test_the_overview_says_what_needs_attention_and_what_can_be_restored(shop: Shop, log_in: LogIn) -> None:
    page = get(log_in(shop), "/")
    assert "nightly" in page.text
    for each in shop.db.status().attention:
        assert each.message in page.text
    assert "No operation is running" in page.text


def test_the_collection_page_draws_every_backup_and_lists_it(shop: Shop, log_in: LogIn) -> None:
    page = get(log_in(shop), "/collections/nightly")
    backups = shop.db.collection("nightly").backups()
    for backup in backups:
        assert page.links.count(f"/collections/nightly/backups/{backup.name}") == 2, "a bar and a row"
    labels = [given["aria-label"] for tag, given in page.tags if tag == "a" and "aria-label" in given]
    assert [label.split(",")[0] for label in labels] == ["full backup", "incremental backup"]
    assert all("not verified" in label for label in labels)
    shop.db.verify("nightly")
    labels = [given.get("aria-label", "") for tag, given in get(log_in(shop), "/collections/nightly").tags]
    assert sum("proved" in label for label in labels) == 2


def test_the_retention_preview_is_the_dry_run_of_prune(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop)
    shop.db.collection("nightly").backup()
    shop.db.collection("nightly").backup()
    before = shop.db.collection("nightly").backups()
    for path in ("/collections/nightly", "/collections/nightly/retention"):
        page = page_of(client.get(path, params={"keep": "KEEP LAST 1 FULL"}))
        assert "3 of 4 backups would be removed" in page.text
        for decision in shop.db.collection("nightly").prune("KEEP LAST 1 FULL", dry_run=True):
            assert decision.backup in page.text
            assert all(reason in page.text for reason in decision.reasons)
        assert "PRUNE nightly KEEP LAST 1 FULL CONFIRM" in page.text
    wrong = page_of(client.get("/collections/nightly/retention", params={"keep": "KEEP <b>"}))
    assert "is not a retention rule" in wrong.text
    assert "<b>" not in wrong.html
    assert shop.db.collection("nightly").backups() == before


def test_a_backup_is_started_and_recorded_with_who_started_it(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop, "operate")
    page = get(client, "/collections/nightly")
    answer = submit(client, page, "Back up changes")
    operation = shop.db.wait(answer.url.path.rsplit("/", 1)[1])
    assert (operation.kind, operation.state) == ("incremental backup", "done")
    entry = shop.db.audit()[0]
    assert (entry.action, entry.principal, entry.target) == ("Collection.backup", "operate token", "nightly")
    assert (entry.result, entry.operation_id) == ("ok", operation.id)


def test_a_restore_goes_from_the_plan_to_the_proof(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop, "operate")
    backup = shop.db.collection("nightly").backups()[-1].name
    page = get(client, f"/collections/nightly/backups/{backup}/restore")
    assert "other names are suggested" in page.text
    assert page.form("Show the plan").fields["to /orders"] == "/orders_restored"
    assert not shop.db.ls("/")[-1].name.endswith("_restored"), "nothing has been changed"
    blocked = page_of(submit(client, page, "Show the plan", **{"to /orders": "/customers"}))
    assert "blocked" in blocked.text
    assert not any(label.startswith("Restore") for label in blocked.labels())
    only = page.form("Show the plan")
    del only.fields["use /customers"]
    plan = page_of(submit(client, page, "Show the plan", **{"to /orders": "/old/orders"}))
    assert plan.form("Restore 1 table").fields["to /orders"] == "/old/orders"
    answer = submit(client, plan, "Restore 1 table")
    operation = answer.url.path.rsplit("/", 1)[1]
    shop.db.wait(operation)
    proof = get(client, f"/operations/{operation}")
    assert "every digest is the one that was recorded" in proof.text
    assert shop.db.describe("/old/orders")["digest"] in proof.text
    assert proof.html.count(">same<") == 2, "the table and its index"
    shop.db.sql("DELETE FROM `old/orders` WHERE id < 10")
    assert "changed since" in get(client, f"/operations/{operation}").text
    shop.db.sql("DROP TABLE `old/orders`")
    assert "gone" in get(client, f"/operations/{operation}").text
    # The back button leads to the plan, which is made anew; sending it again restores a second time.
    assert [e.action for e in shop.db.audit()].count("Collection.restore") == 1


def test_a_restore_over_tables_that_exist_is_said_to_replace_them(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop, "operate")
    backup = shop.db.collection("nightly").backups()[-1].name
    page = get(client, f"/collections/nightly/backups/{backup}/restore?replace=on&read_again=on")
    assert "replaces the table that exists" in page.text
    answer = submit(client, page, "Restore 2 tables")
    done = shop.db.wait(answer.url.path.rsplit("/", 1)[1])
    assert done.result is not None
    assert (done.result["verified"], set(done.result["replaced"])) == ("data", {"/customers", "/orders"})


def test_an_operation_is_cancelled_after_a_question(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop, "operate")
    shop.files.open.clear()
    backup = shop.db.collection("invoices").backups()[-1].name
    page = get(client, f"/collections/invoices/backups/{backup}/restore")
    answer = submit(client, page, "Restore 1 table")
    assert shop.files.waiting.wait(60)
    running = page_of(answer)
    assert "running" in running.text
    assert 'http-equiv="refresh"' in running.html, "without scripts the page loads itself again"
    question = get(client, f"{answer.url.path}/cancel")
    assert "Cancel this restore?" in question.text
    operation = answer.url.path.rsplit("/", 1)[1]
    with ThreadPoolExecutor() as pool:
        sent = pool.submit(submit, client, question, "Cancel the restore")
        wait_for_state(shop, operation, "cancelling", "cancelled")
        shop.files.open.set()
        assert "cancel" in page_of(sent.result()).text
    wait_for_state(shop, operation, "cancelled")
    assert "cancelled" in get(client, f"/operations/{operation}").text
    assert [entry.name for entry in shop.db.ls("/")].count("sales_restored") == 0
    late = submit(client, question, "Cancel the restore")
    assert late.status_code == 409
    assert f"/operations/{operation}" in page_of(late).links


# --- queries, tables, lists -------------------------------------------------------------------------------


def test_a_query_shows_its_rows_and_which_engine_answered(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop, "read")
    page = get(client, "/query?table=/sales/eu/invoices")
    assert page.form("Run").fields["sql"] == "SELECT * FROM `sales/eu/invoices` LIMIT 20"
    answer = page_of(submit(client, page, "Run", sql="SELECT id, status FROM orders WHERE id = 7"))
    assert re.search("Rows ?1, in", answer.text)
    assert "in the process" in answer.text
    assert "look up 1 key" in answer.text
    many = page_of(submit(client, page, "Run", sql="SELECT id FROM orders"))
    assert "the first 200; more exist" in many.text
    for sql, said in (
        ("DROP TABLE orders", "one SELECT at a time"),
        ("SELECT nothing FROM orders", "nothing"),
        ("SELEC", "SYNTAX_ERROR"),
        ("", "one SELECT"),
        ("SELECT '<script>alert(1)</script>' AS x FROM orders LIMIT 1", "<script>alert(1)</script>"),
    ):
        answer = page_of(submit(client, page, "Run", sql=sql))
        assert said in answer.text
        assert "<script>alert" not in answer.html
    assert shop.db.describe("/orders")["type"] == "table"


def test_the_table_page_shows_columns_indexes_streams_and_segments(shop: Shop, log_in: LogIn) -> None:
    shop.db.sql("ALTER TABLE orders ADD CHANGEFEED feed WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON')")
    shop.db.sql("UPSERT INTO orders (id, total) VALUES (1, 1)")
    page = get(log_in(shop, "read"), "/tables/orders")
    segments = shop.db.table("/orders").segments()
    picture = page.html.partition("Segments of the chain")[2].partition("</svg>")[0]
    assert picture.count("<rect") == len(segments)
    widths = [float(width) for width in re.findall(r'width="([\d.]+)%" height="34"', picture)]
    assert sum(widths) == pytest.approx(100, abs=0.1)
    for said in (
        "by_customer",
        "covers total",
        "key 1",
        "a changefeed, NEW_IMAGE",
        "the next increment of nightly",
    ):
        assert said in page.text
    for event in shop.db.table("/orders").history(5):
        assert f"{event.rows:,}" in page.text


def test_a_list_is_shown_page_by_page(shop: Shop, log_in: LogIn, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.server.console import operations

    monkeypatch.setattr(views, "PAGE", 3)
    monkeypatch.setattr(operations, "PAGE", 3)
    client = log_in(shop)
    all_ = [operation.id for operation in shop.db.operations()][::-1]
    seen: list[str] = []
    path = "/operations"
    while True:
        page = get(client, path)
        found = [url.rsplit("/", 1)[1] for url in page.links if url.startswith("/operations/")]
        assert len(found) <= 3
        seen += found
        older = [url for tag, given in page.tags if given.get("rel") == "next" for url in [given["href"]]]
        if not older:
            break
        path = f"/operations{older[0]}"
    assert seen == all_
    for i in range(4):
        shop.db.create_collection(f"extra-{i}", tables=["orders"])
        shop.db.sql(f"CREATE TABLE `extra-{i}` (k Int64 NOT NULL, PRIMARY KEY (k))")
    client = log_in(shop)
    assert "extra-3" not in get(client, "/tables").text
    assert "extra-3" in get(client, "/tables?page=2").text
    assert "4–6 of 6" in get(client, "/?page=2").text
    assert "nightly" in get(client, "/?page=2").text
    assert "/collections/extra-2" in get(client, "/?find=EXTRA-2").links
    assert "No collection has a name with" in get(client, "/?find=zzz").text
    monkeypatch.setattr(views, "BACKUPS", 1)
    assert "Older" in get(client, "/collections/nightly").text
    assert "full" in get(client, "/collections/nightly?page=2").text
    for number in ("0", "-1", "99", "x", "9" * 30):
        get(client, f"/operations?page={number}")
        get(client, f"/?page={number}")
        get(client, f"/collections/nightly?page={number}")
    assert "no state" in get(client, "/operations?state=lost", 400).text


def test_schedules_show_what_runs_next(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop)
    assert "nights" in get(client, "/schedules").text
    shop.db.schedule("nights").pause()
    assert "paused" in get(client, "/schedules").text
    assert "0 2 * * 1-6" in get(client, "/schedules/nights").text


def test_settings_are_shown_without_secrets(tmp_path, log_in: LogIn) -> None:  # type: ignore[no-untyped-def]
    from dataclasses import replace

    from tests.console.shop import open_shop

    shop = open_shop(tmp_path)
    secret = Settings(
        storage_options={"secret_access_key": "s3cret", "region": "eu"},
        spark={"spark.my.password": "s3cret", "spark.x": "https://u:s3cret@host/p"},
        repository_key_command="print s3cret",
    )
    shop.db._runtime.settings = replace(
        shop.db._runtime.settings,
        storage_options=secret.storage_options,
        spark=secret.spark,
        repository_key_command=secret.repository_key_command,
    )
    page = get(log_in(shop), "/settings")
    assert "s3cret" not in page.html
    assert "storage_options.region eu" in page.text
    assert "(a command)" in page.text
    shop.db.close()


def test_a_channel_of_alarms_is_tested(tmp_path, log_in: LogIn) -> None:  # type: ignore[no-untyped-def]
    from dataclasses import replace

    from tests.alarms.receivers import WebReceiver, reply
    from tests.console.shop import open_shop

    shop = open_shop(tmp_path)
    with WebReceiver() as receiver:
        assert "Alarms are not sent to anybody" in get(log_in(shop), "/settings").text
        shop.db._runtime.settings = replace(
            shop.db._runtime.settings,
            channels={"ops": {"type": "webhook", "url": f"{receiver.url}/s3cret"}},
        )
        client = log_in(shop)
        page = get(client, "/settings")
        assert "s3cret" not in page.html
        assert "ops webhook warning 127.0.0.1 Send a test on ops" in page.text
        answer = submit(client, page, "Send a test on ops")
        assert receiver.events() == [("test", "test", "test")]
        assert "ops accepted a test message" in page_of(answer).text
        receiver.answer = lambda handler, number: reply(handler, 503, "closed")
        refused = submit(client, page, "Send a test on ops")
        assert refused.status_code == 503
        assert "the test message on the channel ops failed" in page_of(refused).text.lower()
        assert submit(log_in(shop, "operate"), page, "Send a test on ops").status_code == 403
    shop.db.close()


def test_metrics_cover_the_last_day(shop: Shop, log_in: LogIn) -> None:
    page = get(log_in(shop), "/activity")
    done = len(shop.db.operations(state="done"))
    assert f"{done} done" in page.text
    assert "read from the catalog" in page.text
    assert "strandline_operations_listed" in page.text
    shop.db.sql("ALTER WAREHOUSE SET (HISTORY_SECONDS = 60)")
    assert "keeps commits only for 1 min" in get(log_in(shop), "/activity").text


# --- hostile and missing ----------------------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script>",
    "a\"b'c`d",
    "x" * 200,
    "50% of #1?&amp;=+",
    "ünï \u2028 ✓ {{ 7 * 7 }}",
    "..%2f..",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_only_text(empty_shop: Shop, log_in: LogIn, name: str) -> None:
    db = empty_shop.db
    table = name.replace("/", "-")
    db.sql(f"CREATE TABLE `{table.replace('`', '``')}` (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k))")
    db.table(f"/{table}").upsert([{"k": 1, "v": name}])
    collection = name.replace("/", "-")
    db.create_collection(collection, tables=[table]).backup()
    client = log_in(empty_shop)
    backup = db.collection(collection).backups()[0].name
    for path in (
        "/",
        f"/collections/{quote(collection, safe='')}",
        f"/collections/{quote(collection, safe='')}/backups/{backup}/restore",
        f"/operations/{db.operations()[-1].id}",
        "/tables",
        f"/tables/{quote(table, safe='')}",
    ):
        page = get(client, path)
        assert " ".join(table.split()) in page.text, path
        assert "<script>alert" not in page.html
        for link in page.links:
            if link.startswith("/") and link != "/metrics":
                get(client, link)
    page = get(client, f"/query?table={quote('/' + table, safe='')}")
    assert " ".join(name.split()) in page_of(submit(client, page, "Run")).text
    restore = get(client, f"/collections/{quote(collection, safe='')}/backups/{backup}/restore")
    started = submit(client, restore, "Restore 1 table")
    db.wait(started.url.path.rsplit("/", 1)[1])
    assert db.describe(f"/{table}_restored")["rows"] == 1


def test_what_does_not_exist_is_said_to_be_missing(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop)
    for path in (
        "/collections/nothing",
        "/collections/nothing/backups/x",
        "/collections/nightly/backups/x",
        "/collections/nightly/backups/x/restore",
        "/operations/x",
        "/operations/x/live",
        "/tables/nothing",
        "/schedules/nothing",
    ):
        page = get(client, path, 404)
        assert "Not found" in page.text, path
        assert "none" not in page.text.lower()


def test_an_unknown_address_is_a_page_for_a_browser(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop)
    answer = client.get("/nope", headers={"Accept": "text/html,*/*"})
    assert (answer.status_code, "There is no page at this address" in page_of(answer).text) == (404, True)
    assert client.get("/nope").json()["error"]["code"] == "PATH_NOT_FOUND"
    assert client.get("/static/nope.js").status_code == 404


def test_a_collection_that_is_dropped_while_its_page_is_open(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop)
    page = get(client, "/collections/nightly")
    shop.db.collection("nightly").drop()
    answer = submit(client, page, "Full backup")
    assert answer.status_code == 404
    assert "nightly" in page_of(answer).text
    part = client.get("/collections/nightly/retention?keep=x", headers={"HX-Request": "true"})
    assert part.status_code == 404
    assert "<html" not in part.text
    assert "PATH_NOT_FOUND" in part.text


def test_data_that_cannot_be_reached_is_not_shown_as_none(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop)
    assert get(client, "/collections/nightly").text
    shop.db.close()
    for path in ("/", "/collections/nightly", "/operations", "/tables"):
        answer = client.get(path)
        assert answer.status_code in (409, 503)
        text = page_of(answer).text
        assert "The database is closed" in text
        assert "No operation" not in text
        assert "no backup" not in text


def test_a_repository_that_is_away_is_told_when_it_is_needed(shop: Shop, log_in: LogIn) -> None:
    client = log_in(shop)
    (shop.folder / "repository").rename(shop.folder / "away")
    page = get(client, "/collections/invoices")
    assert "full" in page.text, "what the catalog knows is still shown"
    answer = submit(client, page, "Full backup")
    operation = answer.url.path.rsplit("/", 1)[1]
    with contextlib.suppress(StrandlineError):
        shop.db.wait(operation)
    later = [shop.db.operation(o.id) for o in shop.db.operations(state="failed")]
    assert later[-1].error is not None
    assert later[-1].error["message"] in get(client, f"/operations/{later[-1].id}").text


def test_an_empty_warehouse_says_what_to_do(empty_shop: Shop, log_in: LogIn) -> None:
    client = log_in(empty_shop)
    for path, said in (
        ("/", "CREATE BACKUP COLLECTION"),
        ("/operations", "BACKUP nightly"),
        ("/tables", "CREATE TABLE"),
        ("/schedules", "CREATE SCHEDULE"),
    ):
        assert said in get(client, path).text
    empty_shop.db.sql("CREATE TABLE orders (id Uint64 NOT NULL, PRIMARY KEY (id))")
    empty_shop.db.create_collection("nightly", tables=["orders"])
    page = get(client, "/collections/nightly")
    assert "BACKUP nightly" in page.text
    assert "ALTER BACKUP COLLECTION nightly SET (RETENTION" in page.text
    get(client, "/tables/orders")


# --- live values ------------------------------------------------------------------------------------------


def test_the_stream_of_an_operation_ends_with_it(shop: Shop) -> None:
    shop.files.open.clear()
    with serving(shop, QUIET) as url, httpx.Client(base_url=url, timeout=60) as client:
        client.post("/login", data={"token": shop.token("operate")})
        started = shop.db.collection("invoices").restore(into="/beside", wait=False)
        assert shop.files.waiting.wait(60)
        seen: list[str] = []
        with client.stream("GET", f"/operations/{started.id}/live") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    seen.append(line.removeprefix("event: "))
                    shop.files.open.set()
                if seen[-1:] == ["said"] and line.startswith("data: "):
                    assert line == "data: The restore is done."
        assert (seen[0], seen[-1]) == ("progress", "end")
        with client.stream("GET", f"/operations/{started.id}/live") as stream:
            assert "event: end" in "".join(stream.iter_text()), "a stream of an ended operation ends at once"


def test_the_stream_of_the_overview_ends_when_the_token_is_revoked(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strandline.server import feed

    monkeypatch.setattr(feed, "HEARTBEAT_SECONDS", 0.05)
    token = shop.db.create_token("short")
    with serving(shop, QUIET) as url, httpx.Client(base_url=url, timeout=60) as client:
        client.post("/login", data={"token": token.token})
        with client.stream("GET", "/live") as stream:
            text = stream.iter_text()
            assert "No operation is running" in next(text)
            shop.db.revoke_token(token.id)
            for _ in text:
                pass
        assert client.get("/live").status_code == 303


def test_values_of_an_event_cannot_make_another_event() -> None:
    from strandline.server.console.live import server_event

    text = server_event("progress", "a\n\nevent: end\rdata: x\u2028b")
    assert [line.partition(":")[0] for line in text.strip().split("\n")] == ["event"] + ["data"] * 5


def test_the_page_parser_reads_forms() -> None:
    page = Page(
        '<form action="/x"><input name="a" value="1"><input type=checkbox name="b"><button>Go</button></form>'
    )
    assert page.form("Go").fields == {"a": "1"}
