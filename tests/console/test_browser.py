"""The console in a real browser: live values, keyboard, narrow and dark pages, and no accessibility faults.

``make console`` installs what these tests need. With STRANDLINE_PICTURES=docs/pictures they also take the
pictures of the documentation.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from strandline.api.access import Role
from tests.console.shop import DAYS, Shop, fill, open_shop, serving, wait_for_state

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS = [1280, 390]
SCHEMES = ["light", "dark"]
PICTURES = os.environ.get("STRANDLINE_PICTURES")
WAIT = 60_000.0

Open: TypeAlias = Callable[..., "Tab"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is missing: make console")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is missing: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=OPTIONS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Shop]:
    """A warehouse with some weeks of backups, which tests only read. It is being served."""
    shop = open_shop(tmp_path_factory.mktemp("weeks"), days=DAYS)
    fill(shop)
    shop.db.wait(shop.db.collection("invoices").restore(into="/trial", wait=False).id)
    with serving(shop):
        yield shop
    shop.db.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Open]:
    """Open a browser of its own, logged in, at a page. Fails if a script or the policy complains."""
    contexts, complaints = [], []

    def go(shop: Shop, path: str = "/", role: Role | None = "operate", **options: Any) -> Tab:
        options.setdefault("viewport", {"width": 1280, "height": 800})
        context = browser.new_context(base_url=shop.url, reduced_motion="reduce", **options)
        contexts.append(context)
        context.set_default_timeout(WAIT)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if is_complaint(said) else None)
        if role is not None:
            page.goto("/login")
            page.get_by_label("Token").fill(shop.token(role))
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url(f"{shop.url}/")
        if path != page.url.removeprefix(shop.url) or role is None:
            page.goto(path)
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []


def is_complaint(said: Any) -> bool:
    """Return whether a message of the browser's console is about a page of ours. A lost stream and a response
    that is an error are what some tests are about."""
    return said.type == "error" and not re.search(
        "EventSource|Failed to load resource|object Event", said.text
    )


PLACES = """
(folder) => document.querySelectorAll(".where, td, .sub, dd").forEach((place) => {
    if (!place.children.length) place.textContent = place.textContent.replaceAll(folder, "/srv/shop");
})
"""
"""Gives the folders of a test the names of folders of a server."""


def look(shop: Shop, page: Tab, name: str) -> None:
    """Take a picture for the documentation, if it is asked for."""
    if PICTURES is not None:
        page.evaluate(PLACES, str(shop.folder))
        width = page.viewport_size["width"] if page.viewport_size else 0
        page.screenshot(path=Path(PICTURES) / f"console-{name}-{width}.png")


def paths_of(shop: Shop) -> dict[str, str]:
    """The pages by name."""
    backups = shop.db.collection("nightly").backups()
    return {
        "login": "/login",
        "overview": "/",
        "collection": "/collections/nightly?keep=KEEP+LAST+1+FULL+DAILY+7",
        "in a repository": "/collections/invoices",
        "backup": f"/collections/nightly/backups/{backups[-1].name}",
        "restore": f"/collections/nightly/backups/{backups[-1].name}/restore",
        "operations": "/operations",
        "operation": f"/operations/{shop.db.operations(kind='restore')[-1].id}",
        "tables": "/tables",
        "table": "/tables/orders",
        "query": "/query?table=/orders",
        "schedules": "/schedules",
        "schedule": "/schedules/nights",
        "metrics": "/activity",
        "tokens": "/tokens",
        "audit": "/audit",
        "settings": "/settings",
        "missing": "/collections/nothing",
    }


# --- looks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_and_has_no_accessibility_fault(
    weeks: Shop, tab: Open, width: int, scheme: str
) -> None:
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None or spec.origin is None:
        pytest.skip("axe-core is missing: make console")
    axe = (Path(spec.origin).parent / "axe.min.js").read_text("utf-8")
    page = tab(weeks, role="admin", viewport={"width": width, "height": 844}, color_scheme=scheme)
    faults = []
    for name, path in paths_of(weeks).items():
        page.goto(path)
        if name == "query":
            page.get_by_role("button", name="Run").click()
            page.get_by_role("heading", name="Rows").wait_for()
        for summary in page.locator("summary").all():
            summary.click()
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wide > 0:
            faults.append((name, "wider than the screen", wide))
        page.evaluate(axe)
        for found in page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]:
            if found["impact"] in ("serious", "critical"):
                nodes = [(node["target"], node["failureSummary"]) for node in found["nodes"][:3]]
                faults.append((name, found["id"], nodes))
    assert faults == []


@pytest.mark.parametrize("width", WIDTHS)
def test_the_pictures_of_the_documentation(weeks: Shop, tab: Open, width: int) -> None:
    page = tab(weeks, role="admin", viewport={"width": width, "height": 900 if width > 500 else 844})
    for name in ("overview", "collection"):
        page.goto(paths_of(weeks)[name])
        assert page.get_by_role("heading", level=1).is_visible()
        look(weeks, page, name)
    weeks.files.allowed = 26
    weeks.files.open.clear()
    started = weeks.db.collection("invoices").restore(into=f"/before-{width}", wait=False)
    try:
        assert weeks.files.waiting.wait(60)
        page.goto(f"/operations/{started.id}")
        page.locator(".cells i.progress").first.wait_for()
        look(weeks, page, "operation")
    finally:
        weeks.files.open.set()
        weeks.files.waiting.clear()
    weeks.db.wait(started.id)


def test_the_page_is_dark_where_the_reader_prefers_it(weeks: Shop, tab: Open) -> None:
    grounds = []
    for scheme in SCHEMES:
        page = tab(weeks, color_scheme=scheme)
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    light, dark = (sum(map(int, re.findall(r"\d+", ground)[:3])) for ground in grounds)
    assert light > 600 > 200 > dark


def test_a_narrow_page_has_its_sections_in_a_menu(weeks: Shop, tab: Open) -> None:
    page = tab(weeks, viewport={"width": 390, "height": 844})
    link = page.get_by_role("link", name="Schedules")
    assert not link.is_visible()
    page.get_by_role("button", name="Sections").click()
    link.click()
    page.wait_for_url("**/schedules")


def test_the_picture_of_the_backups_can_be_used_with_the_keyboard(weeks: Shop, tab: Open) -> None:
    page = tab(weeks, "/collections/nightly")
    backups = weeks.db.collection("nightly").backups()
    bars = page.locator("svg.plot a")
    assert bars.count() == len(backups)
    boxes = [bar.bounding_box() for bar in page.locator("svg.plot a rect.bar").all()]
    lefts = [box["x"] for box in boxes if box is not None]
    assert lefts == sorted(lefts), "in the order of time"
    rights = [box["x"] + box["width"] for box in boxes if box is not None]
    assert all(right <= left for right, left in zip(rights, lefts[1:], strict=False)), "no bar hides another"
    page.get_by_role("link", name="Skip the picture").focus()
    page.keyboard.press("Tab")
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused.startswith("full backup, 20")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/backups/{backups[1].name}")


def test_the_retention_preview_changes_in_place(weeks: Shop, tab: Open) -> None:
    page = tab(weeks, "/collections/nightly", role="read")
    page.get_by_label("Rule").fill("KEEP LAST 1 FULL")
    page.get_by_role("button", name="Preview").click()
    wanted = weeks.db.collection("nightly").prune("KEEP LAST 1 FULL", dry_run=True)
    gone = sum(not each.keep for each in wanted)
    page.get_by_text(f"{gone} of {len(wanted)} backups would be removed").wait_for()
    assert page.url.endswith("/collections/nightly"), "the page was not loaded again"
    page.get_by_label("Rule").fill("KEEP NOTHING")
    page.keyboard.press("Enter")
    page.get_by_text("is not a retention rule").wait_for()


# --- what changes something -------------------------------------------------------------------------------


@pytest.fixture
def served(shop: Shop, browser: Browser) -> Iterator[Shop]:
    with serving(shop):
        yield shop


def test_a_restore_from_the_plan_to_the_proof_with_live_progress(served: Shop, tab: Open) -> None:
    page = tab(served, "/collections/invoices")
    page.get_by_role("link", name=re.compile("^incremental|^full")).last.click()
    page.get_by_role("link", name="Restore …").click()
    name = page.get_by_label("Restore /sales/eu/invoices as")
    name.fill("/sales/eu/customers/x")
    name.press("Tab")
    page.get_by_role("button", name="Restore 1 table").wait_for()
    name.fill("/orders")
    name.press("Tab")
    page.get_by_text("/orders exists").wait_for()
    assert not page.get_by_role("button", name="Restore 1 table").is_visible()
    name.fill("/again")
    name.press("Tab")
    start = page.get_by_role("button", name="Restore 1 table")
    start.wait_for()
    served.files.open.clear()
    start.click()
    page.wait_for_url("**/operations/*")
    assert served.files.waiting.wait(60)
    page.locator(".cells i.progress").first.wait_for()
    assert page.get_by_role("link", name="Cancel …").is_visible()
    address = page.url
    served.files.open.set()
    page.get_by_text("every digest is the one that was recorded").wait_for()
    assert page.url == address, "the page was not loaded again"
    page.get_by_role("link", name="Cancel …").wait_for(state="detached")
    assert served.db.describe("/again")["digest"] in page.content()
    page.get_by_text("The restore is done.").wait_for(state="attached")
    # Back and forward again do not restore a second time.
    page.go_back()
    page.get_by_role("heading", name="2. The plan").wait_for()
    page.go_forward()
    page.get_by_role("heading", name="Proof").wait_for()
    assert len(served.db.operations(kind="restore")) == 1


def test_an_operation_is_cancelled_while_it_runs(served: Shop, tab: Open) -> None:
    served.files.open.clear()
    started = served.db.collection("invoices").restore(into="/trial", wait=False)
    assert served.files.waiting.wait(60)
    page = tab(served)
    page.get_by_role("region", name="Running now").get_by_role("link", name="restore").click()
    page.get_by_role("link", name="Cancel …").click()
    page.get_by_role("button", name="Cancel the restore").click(no_wait_after=True)
    wait_for_state(served, started.id, "cancelling", "cancelled")
    served.files.open.set()
    page.wait_for_url(f"**/operations/{started.id}")
    page.locator(".state", has_text="cancelled").wait_for()
    assert [each.path for each in served.db.ls("/")].count("/trial") == 0


def test_the_overview_shows_what_begins_and_ends_while_it_is_open(served: Shop, tab: Open) -> None:
    page = tab(served)
    page.get_by_text("No operation is running").wait_for()
    served.files.open.clear()
    started = served.db.collection("invoices").restore(into="/trial", wait=False)
    page.get_by_role("region", name="Running now").get_by_role("link", name="restore").wait_for()
    served.files.open.set()
    served.db.wait(started.id)
    page.get_by_text("No operation is running").wait_for()


def test_a_page_says_that_its_live_values_are_interrupted(shop: Shop, tab: Open) -> None:
    shop.files.open.clear()
    with serving(shop):
        started = shop.db.collection("invoices").restore(into="/trial", wait=False)
        assert shop.files.waiting.wait(60)
        page = tab(shop, f"/operations/{started.id}")
        page.locator(".cells i.progress").first.wait_for()
        assert not page.get_by_text("The live values are interrupted").is_visible()
    page.get_by_text("The live values are interrupted").wait_for()
    shop.files.open.set()


def test_a_double_click_sends_a_form_once(served: Shop, tab: Open) -> None:
    page = tab(served, "/collections/nightly")
    before = len(served.db.collection("nightly").backups())
    page.get_by_role("button", name="Full backup").dblclick()
    page.wait_for_url("**/operations/*")
    page.locator(".state", has_text="done").wait_for()
    assert len(served.db.collection("nightly").backups()) == before + 1
    assert [entry.action for entry in served.db.audit()].count("Collection.backup") == 1


def test_wrong_and_expired_tokens_are_told_why(served: Shop, tab: Open) -> None:
    expired = served.db.create_token("old", expires=0.001).token
    page = tab(served, "/operations", role=None)
    for token, said in (("sl_1_wrong", "This token is not known"), (expired, "This token expired at")):
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.get_by_text(said).wait_for()
    page.get_by_label("Token").fill(served.token("read"))
    page.keyboard.press("Enter")
    page.wait_for_url(f"{served.url}/operations")


def test_a_token_that_expires_while_a_page_is_open_leads_to_the_login(served: Shop, tab: Open) -> None:
    token = served.db.create_token("short", role="operate")
    served.tokens["operate"] = token.token
    page = tab(served, "/collections/nightly")
    served.db.revoke_token(token.id)
    page.get_by_role("button", name="Preview").click()
    page.get_by_text("The request has no valid token or session").wait_for()
    assert page.get_by_role("link", name="Log in again").is_visible()
    page.get_by_role("link", name="Operations").click()
    page.get_by_text("Your session has ended").wait_for()


def test_a_reader_is_refused_in_words(served: Shop, tab: Open) -> None:
    page = tab(served, "/collections/nightly", role="read")
    assert page.get_by_role("button", name="Full backup").count() == 0
    backup = served.db.collection("nightly").backups()[-1].name
    page.goto(f"/collections/nightly/backups/{backup}/restore")
    page.get_by_role("button", name="Restore 2 tables").click()
    page.get_by_text("needs the role operate").wait_for()
    assert served.db.operations(kind="restore") == []


def test_pages_work_without_scripts(served: Shop, tab: Open) -> None:
    page = tab(served, "/collections/nightly?keep=KEEP+LAST+1+FULL", java_script_enabled=False)
    page.get_by_text("of 2 backups would be removed").wait_for()
    page.get_by_role("button", name="Back up changes").click()
    page.wait_for_url("**/operations/*")
    page.locator(".state", has_text="done").wait_for()
    page.goto("/query")
    page.get_by_label("Statement").fill("SELECT count(*) AS n FROM orders")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("columnheader", name="n").wait_for()
    rows = served.db.describe("/orders")["rows"]
    page.get_by_role("cell", name=str(rows), exact=True).wait_for()


def test_a_name_that_is_a_script_is_shown_and_not_run(served: Shop, tab: Open) -> None:
    name = "<img src=x onerror=alert(1)>"
    served.db.sql(f"CREATE TABLE `{name}` (k Int64 NOT NULL, PRIMARY KEY (k))")
    served.db.create_collection(name, tables=[name]).backup()
    page = tab(served)
    page.on("dialog", lambda dialog: pytest.fail("a script of a name was run"))
    page.get_by_role("link", name=name).click()
    page.get_by_role("heading", name=name, level=1).wait_for()
    page.locator("svg.plot a").first.click()
    page.get_by_role("link", name="Restore …").click()
    page.get_by_role("button", name="Restore 1 table").click()
    page.get_by_text("every digest is the one that was recorded").wait_for()
