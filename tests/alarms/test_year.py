"""A year of schedules and alarms, in two time zones, with two processes; and a process that is killed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from strandline import Database, Settings
from strandline.alarms.board import CLAIM_SECONDS, WATCH_SECONDS
from tests.alarms.receivers import WebReceiver, reply
from tests.alarms.services import Service
from tests.backups.reading import open_at
from tests.catalogs import Death, ManualClock
from tests.crash.mortal import Fate, bury, connect
from tests.effort import EVERY

HOUR, DAY = 3600.0, 86400.0
BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
FIRST, LAST = date(2026, 1, 5), date(2027, 1, 4)
CHANGES = (date(2026, 3, 8), date(2026, 3, 29), date(2026, 10, 25), date(2026, 11, 1))
"""The days on which a clock is changed in one of the two zones."""

pytestmark = pytest.mark.slow


def days() -> list[date]:
    """Return the days that are simulated: a whole year, or the days around each change of a clock."""
    every = [FIRST + timedelta(days=n) for n in range((LAST - FIRST).days)]
    return every if EVERY else [d for d in every if any(abs((d - change).days) <= 3 for change in CHANGES)]


def due_at(day: date, at: time, zone: str) -> float:
    """Return when a run at a local time is due: what a wall clock skips is due when it goes on, and of a
    time that it shows twice the first one counts."""
    there = datetime.combine(day, at, ZoneInfo(zone)).astimezone(timezone.utc)
    is_shown = there.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == datetime.combine(day, at)
    if is_shown:
        return there.timestamp()
    moment = there - timedelta(hours=2)
    while moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) < datetime.combine(day, at):
        moment += timedelta(minutes=1)
    return moment.timestamp()


@dataclass
class Year:
    """What happened in a year."""

    clock: ManualClock
    db: Database
    runs: dict[tuple[str, str, float], str] = field(default_factory=dict)

    def note(self) -> None:
        """Remember the last runs, which are deleted after some time."""
        for name in ("nights", "checks"):
            for run in self.db.schedule(name).runs(limit=8):
                self.runs[name, run.task, run.due] = run.state


def hours(day: date, clock: ManualClock) -> Iterator[None]:
    """Let a day pass, hour by hour and a little."""
    begin = datetime.combine(day, time(0), timezone.utc).timestamp()
    for hour in range(24):
        clock.sleep(max(0.0, begin + hour * HOUR + 60 - clock.now()))
        yield


def test_a_year(tmp_path: Path, web: WebReceiver) -> None:
    order = random.Random(7)
    start = datetime.combine(days()[0], time(0), timezone.utc).timestamp()
    clock, place = ManualClock(start), tmp_path / "repository"
    channels = {"ops": {"type": "webhook", "url": web.url}}
    dbs = [open_at(tmp_path / "w", clock=clock, settings={"channels": channels}) for _ in range(2)]
    db = dbs[0]
    db.sql("CREATE TABLE t (k Int64, PRIMARY KEY (k)); UPSERT INTO t (k) VALUES (0)")
    db.sql(
        f"CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = '{place}', INCREMENTAL_BACKUP_ENABLED = "
        "'true', RPO = '30h', PROVED_WITHIN = '4d', RETENTION = 'KEEP LAST 2 FULL'); BACKUP c"
    )
    db.create_schedule(
        "nights", "c", full="30 2 * * 1", incremental="30 2 * * 2-7", timezone=BERLIN, retries=0
    )
    db.create_schedule("checks", "c", verify="30 1 * * *", drill="30 2 * * 3", timezone=NEW_YORK)
    db.verify("c")
    services, year = [Service(each) for each in dbs], Year(clock, db)
    troubles: Counter[str] = Counter()
    stopped: set[date] = set()
    previous = days()[0]
    for number, day in enumerate(days()):
        if (day - previous).days > 1:
            stopped |= {previous + timedelta(days=n) for n in range(1, (day - previous).days)}
        previous = day
        trouble = {4: "table", 9: "repository", 15: "receiver", 21: "processes"}.get(number % 28)
        troubles[trouble or "none"] += 1
        if trouble == "table":
            db.sql("ALTER BACKUP COLLECTION c ADD TABLE gone")
        elif trouble == "repository":
            place.rename(tmp_path / "away")
        elif trouble == "receiver":
            web.answer = lambda handler, _: reply(handler, 503)
        elif trouble == "processes":
            stopped.add(day)
            continue
        for _ in hours(day, clock):
            for service in order.sample(services, 2):
                service.turn()
            year.note()
        if trouble == "table":
            db.sql("ALTER BACKUP COLLECTION c DROP TABLE gone")
        elif trouble == "repository":
            (tmp_path / "away").rename(place)
        elif trouble == "receiver":
            web.answer = None
        db.sql(f"UPSERT INTO t (k) VALUES ({number + 1})")
        if day.weekday() == 6:
            db.maintain()
    for _ in range(3):  # The last troubles end.
        db.sql("BACKUP c")
        db.verify("c", level="restore")
        clock.sleep(2 * HOUR)
        services[0].turn()
    assert sum(troubles[each] for each in ("table", "repository", "receiver", "processes")) >= 3
    check_runs(year, stopped)
    assert [(a.kind, a.message) for a in db.alarms() if a.subject != "ops"] == []
    check_messages(web, db, duplicates=False)
    for each in dbs:
        each.close()


def check_runs(year: Year, stopped: set[date]) -> None:
    """Each run was due when the wall clocks say so, and was started once; what was missed, once for all."""
    seen = dict(year.runs)
    expected: set[tuple[str, str, float]] = set()
    for day in days():
        full = "full" if day.weekday() == 0 else "incremental"
        drill = [("checks", "drill", time(2, 30), NEW_YORK)] if day.weekday() == 2 else []
        for name, task, at, zone in (
            ("nights", full, time(2, 30), BERLIN),
            ("checks", "verify", time(1, 30), NEW_YORK),
            *drill,
        ):
            due = due_at(day, at, zone)
            on = datetime.fromtimestamp(due, timezone.utc).date()
            near = {on, on - timedelta(days=1), on + timedelta(days=1)}
            if not stopped & near and on in days():
                expected.add((name, task, due))
    began = min(due for _, _, due in seen)
    missing = [key for key in expected if key not in seen and key[2] > began]
    assert missing == []
    allowed = {*expected} | {
        key
        for key in seen
        if stopped
        & {datetime.fromtimestamp(key[2], timezone.utc).date() + timedelta(days=n) for n in (-1, 0, 1)}
    }
    assert {key for key in seen if key not in allowed} == set()
    assert {*seen.values()} <= {"done", "failed"}
    assert Counter(seen.values())["done"] > len(seen) * 3 // 4


def check_messages(web: WebReceiver, db: Database, *, duplicates: bool) -> None:
    """Every alarm that was told was raised first, and resolved last; and each message came once."""
    accepted: dict[tuple[str, str, int], list[str]] = {}
    keys: Counter[str] = Counter()
    for body in web.accepted:
        for alarm in body["alarms"]:
            keys[alarm["key"]] += 1
            if keys[alarm["key"]] == 1:
                told = accepted.setdefault((alarm["kind"], alarm["subject"], alarm["number"]), [])
                told.append(alarm["event"])
    assert duplicates or {*keys.values()} == {1}
    opened = {alarm.key for alarm in db.alarms()}
    latest: dict[tuple[str, str], int] = {}
    for kind, subject, number in accepted:
        latest[kind, subject] = max(number, latest.get((kind, subject), 0))
    for (kind, subject, number), told in accepted.items():
        assert told[0] == "raised", (kind, subject, told)
        assert "raised" not in told[1:] or kind == "backup_old"
        assert "resolved" not in told[:-1]
        if (kind, subject) not in opened and latest[kind, subject] == number:
            assert told[-1] == "resolved", (kind, subject, number, told)


# --- a process that is killed ------------------------------------------------------------------------------

STORY = """CREATE TABLE t (k Int64, PRIMARY KEY (k)); UPSERT INTO t (k) VALUES (1);
           CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', RPO = '90m')"""


def settings(web: WebReceiver) -> Settings:
    return Settings(channels={"ops": {"type": "webhook", "url": web.url}}, carry_on_seconds=0.0)


def begin(folder: Path, clock: ManualClock) -> None:
    """Make the warehouse: hourly backups, of which some fail because a table is missing."""
    with open_at(folder, clock=clock) as db:
        db.sql(STORY)
        db.create_schedule("s", "c", full="0 * * * *", retries=0)


def live(folder: Path, clock: ManualClock, fate: Fate, web: WebReceiver) -> bool:
    """Let two processes live for some hours, of which one may be killed. Return whether it was."""
    mortal = connect(folder, None, fate, settings(web), clock=clock)
    other = open_at(folder, clock=clock, settings={"channels": settings(web).channels})
    dead = False
    try:
        first, second = Service(mortal), Service(other)
        for hour in range(5):
            clock.sleep(HOUR - clock.now() % HOUR + 1)
            if hour in (1, 3):
                other.sql(f"ALTER BACKUP COLLECTION c {'ADD' if hour == 1 else 'DROP'} TABLE gone")
            for _ in range(3):
                if not dead:
                    try:
                        first.turn()
                    except Death:
                        dead = True
                        bury(mortal, folder, None)
                second.turn()
                clock.sleep(max(CLAIM_SECONDS, WATCH_SECONDS) + 1)
        check_story(other, web)
    finally:
        if not dead:
            mortal.close()
        other.close()
    return dead


def check_story(db: Database, web: WebReceiver) -> None:
    """Each due run was started once, each alarm was raised and cleared."""
    runs = db.schedule("s").runs()
    dues = [run.due for run in reversed(runs)]
    assert [after - before for before, after in zip(dues, dues[1:], strict=False)] == [HOUR] * 4
    assert [run.state for run in reversed(runs)] == ["done", "failed", "failed", "done", "done"]
    assert {run.attempt for run in runs} == {1}
    assert len(db.sql("SHOW BACKUPS IN c").rows()) == 3
    assert len(db.operations(kind="backup", state="done")) == 3
    assert db.alarms() == [] and db.status().level == "fine"
    cleared = {alarm.key: alarm for alarm in db.alarms(cleared=True)}
    assert {("backup_failed", "c"), ("rpo_missed", "c"), ("tables_missing", "c")} <= {*cleared}
    assert all(alarm.cleared_at is not None for alarm in cleared.values())


def test_a_process_that_is_killed_at_any_write(tmp_path: Path, stacked: Callable[[], WebReceiver]) -> None:
    order, at, tried = random.Random(11), 0, 0
    while True:
        at += 1 if EVERY else order.randint(1, 40)
        clock, folder, fate, web = ManualClock(), tmp_path / str(at), Fate(at), stacked()
        begin(folder, clock)
        try:
            dead = live(folder, clock, fate, web)
            duplicates = [key for key, number in Counter(web.keys()).items() if number > 1]
            assert dead or not duplicates
            assert len(duplicates) <= len(max((body["alarms"] for body in web.bodies), key=len))
            with open_at(folder, clock=clock) as db:
                check_messages(web, db, duplicates=dead)
        except BaseException as error:
            error.add_note(f"killed at boundary {at}: {fate.place}") if hasattr(error, "add_note") else None
            raise
        tried += 1
        if not dead:
            break
    assert tried > 3


@pytest.fixture
def stacked(stack: object) -> Callable[[], WebReceiver]:
    """Start one more receiver."""
    from contextlib import ExitStack

    assert isinstance(stack, ExitStack)
    return lambda: stack.enter_context(WebReceiver())
