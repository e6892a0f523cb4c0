"""The command ``strandline demo``: backs up, destroys, restores and verifies a small shop.

All numbers that it displays are measured during the run.
"""

from __future__ import annotations

import io
import re
import shutil
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import strandline
from strandline.errors import Internal, PreconditionFailed, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from rich.console import Console

    from strandline.api.result import Result

TABLES = """
CREATE TABLE customers (id Uint64 NOT NULL, name Utf8, city Utf8, PRIMARY KEY (id),
                        INDEX by_city GLOBAL SYNC ON (city));
CREATE TABLE orders (id Uint64 NOT NULL, customer Uint64, status Utf8, total Int64, PRIMARY KEY (id),
                     INDEX by_customer GLOBAL SYNC ON (customer) COVER (total))
"""
COLLECTION = """
CREATE BACKUP COLLECTION shop (TABLE customers, TABLE orders)
    WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')
"""
NEW_ORDERS = "UPSERT INTO orders (id, customer, status, total) VALUES"
PAID = "UPDATE orders SET status = 'paid' WHERE id < 500"
AFTERNOON = """
UPDATE customers SET city = 'Lisbon' WHERE id = 42;
DELETE FROM orders WHERE id BETWEEN 1000 AND 1199
"""
QUESTION = "SELECT id, status, total FROM orders VIEW by_customer WHERE customer = 42 ORDER BY id"
CUSTOMERS = 500
PATHS = ("/customers", "/customers/by_city", "/orders", "/orders/by_customer")


@dataclass
class StoryStep:
    """A step of the demo: its name, duration, and the bytes of a backup or a restore."""

    name: str
    seconds: float = 0.0
    bytes: int | None = None
    remark: str = ""


@dataclass
class Story:
    """The running demo: its console, its database, and the steps so far."""

    console: Console
    db: strandline.Database
    steps: list[StoryStep] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[StoryStep]:
        step = StoryStep(name)
        self.console.print(f"[bold]{len(self.steps) + 1}. {name}[/]")
        started = time.monotonic()
        yield step
        step.seconds = time.monotonic() - started
        self.steps.append(step)
        cost = _seconds(step.seconds) + ("" if step.bytes is None else f", {_size(step.bytes)}")
        self.console.print(f"   {step.remark} [cyan]({cost})[/]\n", highlight=False)

    def sql(self, text: str) -> Result:
        """Display a statement and run it."""
        self.show(text)
        return self.db.sql(text)

    def show(self, text: str) -> None:
        """Display a statement."""
        lines = textwrap.indent(textwrap.dedent(text).strip() + ";", "   ")
        self.console.print(lines, style="dim", highlight=False, markup=False, soft_wrap=True)


def run(
    folder: str | None = None,
    *,
    catalog: str | None = None,
    rows: int = 200_000,
    quiet: bool = False,
    picture: str | None = None,
) -> dict[str, Any]:
    """Run the demo in a new warehouse and return the cost of each step and the result of the verification.

    The warehouse is removed afterwards, unless the caller gives its ``folder``.
    """
    from rich.console import Console

    console = Console(
        file=io.StringIO() if quiet else None,  # the picture needs the output even if it is not displayed
        record=picture is not None,
        width=110 if picture else None,
    )
    place = folder or tempfile.mkdtemp(prefix="strandline-demo-")
    try:
        with strandline.connect(place, catalog=catalog) as db:
            if db.ls("/"):
                raise PreconditionFailed(
                    f"the warehouse {place} is not empty", "Choose a folder that is not there yet."
                )
            report = _tell(Story(console, db), rows)
    finally:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
    if folder is not None:
        console.print(
            f"Look around: strandline tree -w {folder}, strandline sql -w {folder}",
            highlight=False,
            markup=False,
        )
    if picture is not None:
        _draw(console, picture)
    return {"warehouse": folder, **report}


def _tell(story: Story, rows: int) -> dict[str, Any]:
    db = story.db
    with story.step("Open a shop: two tables, each with a global index") as step:
        story.sql(TABLES)
        db.table("customers").upsert(
            [{"id": i, "name": f"customer {i}", "city": f"city {i % 20}"} for i in range(CUSTOMERS)]
        )
        step.remark = "customers (index by_city) and orders (index by_customer), in process, without a JVM"
    with story.step(f"Start Spark and load {rows:,} orders") as step:
        db.table("orders").upsert(_orders(db, rows))
        step.bytes = _stored_bytes(db)
        step.remark = "rows and index entries in one commit"
    with story.step("Say what is backed up together") as step:
        story.sql(COLLECTION)
        step.remark = "two tables and their indexes"
    shop = db.collection("shop")
    with story.step("Full backup: tables and indexes at one step") as step:
        story.show("BACKUP shop")
        full = _tell_backup(step, shop.backup(), "segments are shared, nothing is copied")

    with story.step("Morning: new orders, and old ones are paid") as step:
        new = [
            {"id": rows + i, "customer": i % CUSTOMERS, "status": "new", "total": 100 + i}
            for i in range(1000)
        ]
        shown = [f"({', '.join(map(repr, order.values()))})" for order in (new[0], new[1], new[-1])]
        story.show(f"{NEW_ORDERS} {shown[0]}, {shown[1]}, ... {shown[2]};\n{PAID}")
        with db.transaction():
            db.table("orders").upsert(new)
            paid = db.sql(PAID).rows_changed or 0
        step.remark = f"{len(new) + paid:,} rows, one commit"
    morning = _increment(story, shop, "only what changed")

    with story.step("Afternoon: customer 42 moves, some orders are cancelled") as step:
        step.remark = f"{story.sql(AFTERNOON).rows_changed:,} rows in two tables, one commit"
    afternoon = _increment(story, shop, "only what changed")
    before, answer = _digests(db), db.sql(QUESTION).rows()

    with story.step("Disaster: a bad script, and somebody backs up its work before anyone looks") as step:
        lost = story.sql("UPDATE orders SET total = 0 WHERE id < 5000").rows_changed
        step.remark = f"{lost:,} totals are gone"
    evening = _increment(story, shop, "the damage is in it")
    with story.step("Then the tables are dropped") as step:
        story.sql("DROP TABLE orders; DROP TABLE customers")
        step.remark = "nothing is left but the backups"

    with story.step(f"Restore the state of the afternoon: {afternoon}") as step:
        story.show(f"RESTORE shop AT '{afternoon}'")
        increments = len(shop.plan_restore(at=afternoon).chain) - 1
        restored = shop.restore(at=afternoon)
        step.remark = f"{increments} increments on the full backup, {restored.rows:,} rows, visible at once"
        step.bytes = 0
    with story.step("Proof") as step:
        problems = [
            problem.message for path in ("/customers", "/orders") for problem in db.check(path).problems
        ]
        same = _digests(db) == before and story.sql(QUESTION).rows() == answer
        step.remark = "every digest recomputed from the data, every index compared with its table"
    if problems or not same:
        raise Internal("the restored shop is not the one that was backed up")
    _show_proof(story, before, len(answer))
    return {
        "backups": [full, morning, afternoon, evening],
        "restored": afternoon,
        "steps": [{"name": s.name, "seconds": round(s.seconds, 3), "bytes": s.bytes} for s in story.steps],
        "digests": before,
        "problems": problems,
    }


def _orders(db: strandline.Database, rows: int) -> DataFrame:
    return db._runtime.spark.range(rows).selectExpr(
        "cast(id as decimal(20,0)) as id",
        f"cast(id * 7919 % {CUSTOMERS} as decimal(20,0)) as customer",
        "'new' as status",
        "id % 997 + 1 as total",
    )


def _increment(story: Story, shop: strandline.Collection, remark: str) -> str:
    with story.step("Incremental backup") as step:
        story.show("BACKUP shop INCREMENTAL")
        return _tell_backup(step, shop.backup(incremental=True), remark)


def _tell_backup(step: StoryStep, backup: strandline.BackupInfo, remark: str) -> str:
    """Set the bytes and the remark of the step that took a backup; return the name of the backup."""
    step.bytes = backup.bytes
    step.remark = f"{backup.name}: {backup.rows:,} rows at step {backup.step}; {remark}"
    return backup.name


def _digests(db: strandline.Database) -> dict[str, str]:
    return {path: db.describe(path)["digest"] for path in PATHS}


def _stored_bytes(db: strandline.Database) -> int:
    found = (
        "/customers",
        "/customers/by_city/indexImplTable",
        "/orders",
        "/orders/by_customer/indexImplTable",
    )
    return sum(db.describe(path)["bytes"] for path in found)


def _show_proof(story: Story, digests: dict[str, str], found: int) -> None:
    for path, digest in digests.items():
        story.console.print(f"   [green]same[/]  {path:<22} {digest}", highlight=False)
    story.console.print(
        f"   [green]same[/]  {found:,} orders of customer 42, found through the restored index\n",
        highlight=False,
    )
    total = sum(step.seconds for step in story.steps)
    story.console.print(f"All of it took {_seconds(total)}.", highlight=False)


def _draw(console: Console, picture: str) -> None:
    """Save the console output as a picture.

    The font that rich would load from the network is removed.
    """
    drawn = re.sub(
        r"@font-face \{.*?\}\s*|<!--.*?-->\s*",
        "",
        console.export_svg(title="strandline demo"),
        flags=re.DOTALL,
    )
    try:
        Path(picture).write_text(drawn, "utf-8")
    except OSError as error:
        raise Unavailable(
            f"the picture {picture} cannot be written: {error.strerror}",
            "Choose a place that you may write to.",
        ) from None


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
