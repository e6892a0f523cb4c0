"""Alarms: raised once, repeated until acknowledged, cleared; each message sent by one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from strandline import Alarm, Database, Settings, Thresholds
from strandline.alarms import transport
from strandline.alarms.board import BACKOFF_SECONDS, CLAIM_SECONDS, LOOK_SECONDS, WATCH_SECONDS
from strandline.api import alarms as loop
from strandline.api.alarms import board_of
from strandline.catalog import alarms
from strandline.errors import InvalidArgument, PathNotFound, PreconditionFailed, StrandlineError
from tests.alarms.receivers import WebReceiver, reply
from tests.catalogs import ManualClock

HOUR, DAY = 3600.0, 86400.0
MAKE = """CREATE TABLE t (k Int64, PRIMARY KEY (k));
          CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', RPO = '26h'); BACKUP c"""
Opened = Callable[..., Database]


def to(web: WebReceiver, **more: Any) -> Settings:
    channels = {"ops": {"type": "webhook", "url": f"{web.url}/hook"}}
    return Settings(channels=channels, carry_on_seconds=0.0, **more)


def keys(found: list[Alarm]) -> list[tuple[str, str]]:
    return [(alarm.kind, alarm.subject) for alarm in found]


def test_an_alarm_is_raised_once_repeated_until_acknowledged_and_resolved(
    opened: Opened, web: WebReceiver, clock: ManualClock
) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE)
    board = board_of(db)
    assert board.tick() == [] and db.alarms() == []
    clock.sleep(27 * HOUR)
    (sent,) = board.tick()
    assert (sent.channel, sent.alarms, sent.answer, sent.error) == ("ops", 1, "200 OK: ok", None)
    raised = clock.now()
    (alarm,) = db.alarms()
    assert (alarm.kind, alarm.subject, alarm.level, alarm.number) == ("rpo_missed", "c", "critical", 1)
    assert (alarm.raised_at, alarm.last_sent, alarm.times_sent, alarm.cleared_at) == (raised, raised, 1, None)
    assert [(a.kind, a.message) for a in db.status().attention] == [(alarm.kind, alarm.message)]
    for _ in range(3):
        clock.sleep(LOOK_SECONDS)
        assert board.tick() == []
    clock.sleep(4 * HOUR)
    assert len(board.tick()) == 1
    assert web.events() == [("raised", "rpo_missed", "c"), ("repeated", "rpo_missed", "c")]
    assert len({*web.keys()}) == 2
    acknowledged = db.acknowledge_alarm("rpo_missed", "c", by="ada")
    assert (acknowledged.acknowledged_by, acknowledged.acknowledged_at) == ("ada", clock.now())
    assert db.acknowledge_alarm("rpo_missed", "c", by="bob").acknowledged_by == "ada", "the first one stays"
    clock.sleep(DAY)
    assert board.tick() == []
    db.sql("BACKUP c")
    clock.sleep(LOOK_SECONDS)
    assert len(board.tick()) == 1 and board.tick() == []
    assert web.events()[2:] == [("resolved", "rpo_missed", "c")]
    assert db.alarms() == []
    (cleared,) = db.alarms(cleared=True)
    assert (cleared.cleared_at, cleared.times_sent) == (clock.now(), 3)
    with pytest.raises(PreconditionFailed, match="is cleared already"):
        db.acknowledge_alarm("rpo_missed", "c")
    clock.sleep(27 * HOUR)
    board.tick()
    (again,) = db.alarms()
    assert (again.number, again.acknowledged_by, again.times_sent) == (2, None, 1)


def test_the_payload_of_a_webhook(opened: Opened, web: WebReceiver, clock: ManualClock) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE)
    clock.sleep(27 * HOUR)
    board_of(db).tick()
    (body,), (headers,) = web.bodies, web.headers
    assert (body["version"], body["location"]) == (1, db._runtime.files.location)
    assert body["title"] == (
        "Strandline: critical: c: the newest backup that can be restored is 27 hours old, and RPO is 26h"
    )
    (alarm,) = body["alarms"]
    assert (alarm["hint"], alarm["number"], alarm["cleared_at"]) == ("Back it up: BACKUP c.", 1, None)
    assert alarm["raised_at"].endswith("Z")
    assert (headers["Content-Type"], headers["Idempotency-Key"]) == ("application/json", body["key"])
    assert web.paths == ["/hook"]


def test_a_chat_cannot_be_made_to_mention_people(opened: Opened, web: WebReceiver) -> None:
    channels = {"chat": {"type": "slack", "url": f"{web.url}/services/T1/B2/secret"}}
    db = opened(settings=Settings(channels=channels, scratch_tables="x"))
    db.sql("CREATE TABLE `<!channel>&` (k Int64, PRIMARY KEY (k))")
    board_of(db).tick()
    (body,) = web.bodies
    assert [*body] == ["text"]
    assert "no backup collection has 1 table: /&lt;!channel&gt;&amp;" in body["text"]
    assert "<" not in body["text"]


def test_many_alarms_are_one_message(opened: Opened, web: WebReceiver, clock: ManualClock) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE)
    made = "; ".join(
        f"CREATE BACKUP COLLECTION c{n} (TABLE t) WITH (STORAGE = 'cluster')" for n in range(120)
    )
    db.sql(made)
    board = board_of(db)
    assert [each.alarms for each in board.tick()] == [100]
    assert [each.alarms for each in board.tick()] == [20]
    assert board.tick() == []
    assert len(web.bodies) == 2 and len({*web.keys()}) == 120
    assert web.bodies[0]["title"] == "Strandline: 100 alarms: 100 raised"


def test_a_worse_level_is_told_at_once_and_wants_a_new_acknowledgement(
    opened: Opened, web: WebReceiver, clock: ManualClock
) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE.replace(", RPO = '26h'", ""))
    board = board_of(db)
    clock.sleep(27 * HOUR)
    board.tick()
    db.acknowledge_alarm("backup_old", "c")
    clock.sleep(24 * HOUR)
    assert len(board.tick()) == 1
    assert [a["level"] for body in web.bodies for a in body["alarms"]] == ["warning", "critical"]
    assert db.alarms()[0].acknowledged_at is None


def test_a_channel_for_critical_alarms_only(opened: Opened, web: WebReceiver, clock: ManualClock) -> None:
    channels = {"pager": {"type": "webhook", "url": web.url, "level": "critical"}}
    db = opened(settings=Settings(channels=channels))
    db.sql(MAKE.replace(", RPO = '26h'", ""))
    board = board_of(db)
    clock.sleep(27 * HOUR)
    board.tick()
    assert keys(db.alarms()) == [("backup_old", "c")] and web.bodies == []
    clock.sleep(24 * HOUR)
    board.tick()
    assert web.events() == [("raised", "backup_old", "c")]


def test_a_receiver_that_fails_is_tried_again_with_growing_pauses(
    opened: Opened, web: WebReceiver, clock: ManualClock
) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE)
    web.answer = lambda handler, number: reply(handler, 500, f"at {handler.path}: no")
    board, times = board_of(db), []
    clock.sleep(27 * HOUR)
    start = clock.now()
    for _ in range(800):
        for sent in board.tick():
            assert sent.answer is None and str(sent.error).startswith("the channel ops failed: 127.0.0.1 an")
            assert "hook" not in str(sent.error), "the path may be a secret"
            times.append(clock.now() - start)
        clock.sleep(5)
    pauses = [after - before for before, after in zip(times, times[1:], strict=False)]
    assert pauses == [*BACKOFF_SECONDS, BACKOFF_SECONDS[-1], BACKOFF_SECONDS[-1]]
    assert len({*web.keys()}) == 1, "the receiver can tell that it is the same alarm"
    assert db.alarms()[-1].times_sent == 0
    assert ("channel_failed", "ops") in keys(db.alarms())
    (attention,) = [a for a in db.status().attention if a.kind == "channel_failed"]
    assert attention.hint.endswith("strandline alarms test ops.")
    web.answer = None
    clock.sleep(BACKOFF_SECONDS[-1])
    (sent,) = board.tick()
    assert sent.error is None and web.events()[-1] == ("raised", "rpo_missed", "c")
    clock.sleep(LOOK_SECONDS)
    board.tick()
    assert keys(db.alarms()) == [("rpo_missed", "c")]
    assert "channel_failed" not in [kind for _, kind, _ in web.events()], "it is not told of itself"


def test_a_redirect_is_not_followed(opened: Opened, web: WebReceiver, clock: ManualClock) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE)
    with WebReceiver() as other:
        for code in (301, 302, 303, 307, 308):
            web.answer = lambda handler, number, code=code: reply(handler, code, Location=f"{other.url}/x")
            sent = board_of(db).test("ops")
            assert f"answered {code}, a redirect, which is not followed" in str(sent.error)
        assert other.bodies == [] and other.paths == []


@pytest.mark.parametrize("how", ["hangs", "drips", "nonsense", "closes", "endless"])
def test_a_receiver_that_behaves_badly_holds_nobody(
    opened: Opened, web: WebReceiver, clock: ManualClock, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "SECONDS", 0.3)
    monkeypatch.setattr(transport, "TOTAL_SECONDS", 1.0)

    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        if how == "hangs":
            web.released.wait(60)
        elif how == "nonsense":
            handler.wfile.write(b"\x00\xff not HTTP\r\n\r\n")
        elif how == "closes":
            handler.connection.close()
        elif how == "endless":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
            try:
                for n in range(10**6):
                    handler.wfile.write(b"X-More-%d: y\r\n" % n)
            except OSError:
                pass
        else:
            try:
                for byte in b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 1000:
                    handler.wfile.write(bytes([byte]))
                    web.released.wait(0.1)
            except OSError:
                pass

    web.answer = answer
    with WebReceiver() as good:
        channels = {
            "bad": {"type": "webhook", "url": web.url},
            "good": {"type": "webhook", "url": good.url},
        }
        db = opened(settings=Settings(channels=channels))
        db.sql(MAKE)
        clock.sleep(27 * HOUR)
        outcomes = {sent.channel: sent.error for sent in board_of(db).tick()}
        assert outcomes["good"] is None and outcomes["bad"] is not None
        assert good.events() == [("raised", "rpo_missed", "c")]


def test_one_of_two_processes_sends(opened: Opened, web: WebReceiver, clock: ManualClock) -> None:
    first, second = opened(settings=to(web)), opened(settings=to(web))
    first.sql(MAKE)
    boards = [board_of(first), board_of(second)]
    for hour in range(60):
        clock.sleep(HOUR)
        for board in boards if hour % 2 else reversed(boards):
            board.tick()
    assert web.events() == [("raised", "rpo_missed", "c")] + [("repeated", "rpo_missed", "c")] * 8
    assert len({*web.keys()}) == len(web.keys())


def test_a_killed_sender_is_replaced_when_its_claim_expires(
    opened: Opened, web: WebReceiver, clock: ManualClock
) -> None:
    first, second = opened(settings=to(web)), opened(settings=to(web))
    first.sql(MAKE)
    clock.sleep(27 * HOUR)
    killed, other = board_of(first), board_of(second)
    killed.look()

    claimed = killed._claim("ops")
    assert claimed is not None
    transport.send(killed.channel("ops"), killed._message(claimed[1]))  # And then it is killed.
    assert other.send_due() == []
    clock.sleep(CLAIM_SECONDS - 1)
    assert other.send_due() == []
    clock.sleep(1)
    assert len(other.send_due()) == 1
    assert web.events() == [("raised", "rpo_missed", "c")] * 2
    assert len({*web.keys()}) == 1 == len({body["key"] for body in web.bodies})


def test_what_a_killed_sender_may_have_sent_is_resolved(
    opened: Opened, web: WebReceiver, clock: ManualClock
) -> None:
    first, second = opened(settings=to(web)), opened(settings=to(web))
    first.sql(MAKE)
    clock.sleep(27 * HOUR)
    killed, other = board_of(first), board_of(second)
    killed.look()
    claimed = killed._claim("ops")
    assert claimed is not None
    transport.send(killed.channel("ops"), killed._message(claimed[1]))  # And then it is killed.
    second.sql("BACKUP c")
    clock.sleep(WATCH_SECONDS)
    other.tick()
    assert other.tick() == []
    assert web.events() == [("raised", "rpo_missed", "c"), ("resolved", "rpo_missed", "c")]


def test_what_may_have_arrived_is_sent_again_with_the_same_key_and_resolved(
    opened: Opened, web: WebReceiver, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "SECONDS", 0.2)
    db = opened(settings=to(web))
    db.sql(MAKE)
    clock.sleep(27 * HOUR)

    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        if number > 2:
            reply(handler, 200)
        else:
            web.released.wait(2)

    web.answer = answer
    board = board_of(db)
    for _ in range(2):
        (sent,) = board.tick()
        assert "no answer within 0.2 seconds" in str(sent.error)
        clock.sleep(BACKOFF_SECONDS[2])
    db.sql("BACKUP c")
    clock.sleep(LOOK_SECONDS)
    (sent,) = board.tick()
    assert sent.error is None
    assert [event for event, *_ in web.events()] == ["raised", "raised", "resolved"]
    assert web.keys()[0] == web.keys()[1] != web.keys()[2]


def test_a_process_that_stopped_for_an_hour_stores_nothing_old(
    opened: Opened, web: WebReceiver, clock: ManualClock
) -> None:
    first, second = opened(settings=to(web)), opened(settings=to(web))
    first.sql(MAKE)
    clock.sleep(27 * HOUR)
    stopped, other = board_of(first), board_of(second)
    find = stopped._find

    def find_and_stop() -> Any:
        found = find()
        second.sql("BACKUP c")
        clock.sleep(HOUR)
        other.tick()
        return found

    stopped._find = find_and_stop
    assert stopped.look() is False
    assert second.alarms() == [] == second.alarms(cleared=True)
    claimed = None
    clock.sleep(27 * HOUR)
    other.tick()
    assert web.events() == [("raised", "rpo_missed", "c")]
    web.bodies.clear()
    clock.sleep(5 * HOUR)
    claimed = stopped._claim("ops")
    assert claimed is not None
    clock.sleep(HOUR)
    assert len(other.send_due()) == 1
    stopped._send(*claimed)
    assert second.alarms()[0].times_sent == 2, "what it sent late is not counted"


def test_settings_that_differ_do_not_raise_and_clear_in_turns(
    opened: Opened, web: WebReceiver, clock: ManualClock
) -> None:
    strict, lax = opened(settings=to(web)), opened(settings=to(web))
    strict.sql(MAKE.replace(", RPO = '26h'", ""))
    clock.sleep(HOUR)
    boards = [board_of(strict, Thresholds(backup_warning=60)), board_of(lax)]
    for _ in range(60):
        for board in boards:
            board.tick()
        clock.sleep(60)
    assert web.events() == [("raised", "backup_old", "c")]
    boards[0].release()
    boards[1].tick()
    assert web.events()[1:] == [("resolved", "backup_old", "c")]


def test_a_clock_that_is_set_back(opened: Opened, web: WebReceiver, clock: ManualClock) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE)
    board, other = board_of(db), board_of(opened(settings=to(web)))
    clock.sleep(27 * HOUR)
    web.answer = lambda handler, number: reply(handler, 500)
    board.tick()
    web.answer = None
    clock.sleep(-20 * HOUR)
    other.tick()
    assert db.alarms() == [], "the backup is 7 hours old again, and other processes look"
    assert web.events() == [("raised", "rpo_missed", "c")], "nothing is resolved that was not told"
    clock.sleep(20 * HOUR + 60)
    other.tick()
    assert web.events()[1:] == [("raised", "rpo_missed", "c")]
    clock.sleep(-HOUR)
    sent = len(web.bodies)
    for _ in range(30):
        clock.sleep(60)
        other.tick()
    assert len(web.bodies) <= sent + 2, "at most one message more"


def test_collections_schedules_and_tables_that_are_dropped_resolve_their_alarms(
    opened: Opened, web: WebReceiver, clock: ManualClock
) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE)
    db.create_schedule("s", "c", full="0 * * * *", verify="30 * * * *")
    clock.sleep(27 * HOUR)
    board = board_of(db)
    board.tick()
    found = {("rpo_missed", "c"), ("backup_missed", "s"), ("verification_missed", "s")}
    assert {*keys(db.alarms())} == found
    db.sql("DROP SCHEDULE s")
    clock.sleep(LOOK_SECONDS)
    board.tick()
    assert keys(db.alarms()) == [("rpo_missed", "c")]
    db.sql("DROP BACKUP COLLECTION c; UNDROP BACKUP COLLECTION c AS d")
    clock.sleep(LOOK_SECONDS)
    board.tick()
    assert keys(db.alarms()) == [("rpo_missed", "d")]
    db.sql("DROP BACKUP COLLECTION d; DROP TABLE t")
    clock.sleep(LOOK_SECONDS)
    board.tick()
    assert db.alarms() == []
    assert {*web.events()} == {
        (event, *key) for event in ("raised", "resolved") for key in {*found, ("rpo_missed", "d")}
    }


def test_a_failed_backup_is_one_alarm_however_often_it_fails(
    opened: Opened, web: WebReceiver, clock: ManualClock
) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE + "; ALTER BACKUP COLLECTION c ADD TABLE gone")
    db.create_schedule("s", "c", full="0 * * * *", retries=0)
    board = board_of(db)
    for _ in range(3):
        clock.sleep(HOUR)
        db.run_due()
        board.tick()
    assert ("backup_failed", "c") in keys(db.alarms())
    assert [e for e in web.events() if e[1] == "backup_failed"] == [("raised", "backup_failed", "c")]


def test_a_missed_run_that_is_skipped_is_an_alarm_until_the_next_one(
    opened: Opened, web: WebReceiver, clock: ManualClock
) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE)
    db.create_schedule("s", "c", full="0 */4 * * *", missed="skip")
    board = board_of(db)
    clock.sleep(9 * HOUR)
    board.tick()
    assert keys(db.alarms()) == [("backup_missed", "s")]
    db.run_due()
    clock.sleep(LOOK_SECONDS)
    board.tick()
    (alarm,) = db.alarms()
    assert alarm.message == "its last full run was skipped: no scheduler ran when it was due"
    assert (alarm.kind, alarm.number, alarm.level) == ("backup_missed", 1, "warning")
    clock.sleep(4 * HOUR - clock.now() % (4 * HOUR))
    for run in db.run_due():
        db.wait(str(run.operation_id))
    db.run_due()
    clock.sleep(LOOK_SECONDS)
    board.tick()
    assert db.alarms() == []
    assert [e for e, kind, _ in web.events() if kind == "backup_missed"] == ["raised", "resolved"]


def test_old_alarms_are_forgotten(opened: Opened, web: WebReceiver, clock: ManualClock) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE)
    board = board_of(db)
    clock.sleep(27 * HOUR)
    board.tick()
    db.sql("BACKUP c")
    clock.sleep(LOOK_SECONDS)
    board.tick()
    db.maintain()
    assert len(db.alarms(cleared=True)) == 1
    clock.sleep(31 * DAY)
    db.maintain()
    assert db.alarms(cleared=True) == []
    with db._runtime.catalog.read() as conn:
        assert alarms.list_pending(conn, "ops") == []


def test_an_alarm_that_does_not_exist_cannot_be_acknowledged(
    opened: Opened, web: WebReceiver, clock: ManualClock
) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE)
    clock.sleep(27 * HOUR)
    db.check_alarms()
    for kind, subject, hint in (
        ("rpo_mised", "c", "Did you mean 'rpo_missed'?"),
        ("rpo_missed", "d", "List the open alarms with SHOW ALARMS."),
    ):
        with pytest.raises(PathNotFound) as refused:
            db.acknowledge_alarm(kind, subject)
        assert refused.value.hint == hint
    db.sql("ACKNOWLEDGE ALARM rpo_missed FOR c BY 'a\nb'")
    assert db.alarms()[0].acknowledged_by == "a b"


def test_secrets_are_in_no_row_log_or_error(
    opened: Opened,
    web: WebReceiver,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    (tmp_path / "token").write_text("s3cr3t-token\n")
    monkeypatch.setenv("HOOK", f"{web.url}/s3cr3t-path?s3cr3t-query=1")
    channels = {"ops": {"type": "webhook", "url_env": "HOOK", "token_file": str(tmp_path / "token")}}
    settings = Settings(channels=channels)
    db = opened(settings=settings)
    db.sql(MAKE)
    clock.sleep(27 * HOUR)
    board, told = board_of(db), []
    for code in (200, 401, 302, 500):

        def echo(handler: BaseHTTPRequestHandler, number: int, code: int = code) -> None:
            said = f"you sent {handler.headers['Authorization']} to {handler.path}"
            reply(handler, code, said, Location="http://elsewhere/s3cr3t-path")

        web.answer = echo
        told.append(board.test("ops"))
        told += board.tick()
        clock.sleep(5 * HOUR)
    monkeypatch.delenv("HOOK")
    told += board.tick()
    assert "the variable HOOK" in str(told[-1].error)
    assert web.headers[0]["Authorization"] == "Bearer s3cr3t-token"
    rows = db._runtime.catalog.database.engine
    with rows.connect() as conn:
        dump = "\n".join(conn.connection.driver_connection.iterdump())  # type: ignore[union-attr]
    for text in (repr(told), caplog.text, dump, repr(settings), repr(board.channel("ops"))):
        assert "s3cr3t" not in text


def test_the_loop_beside_schedules_sends(opened: Opened, web: WebReceiver, clock: ManualClock) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE)
    clock.sleep(27 * HOUR)
    stop, errors = threading.Event(), list[StrandlineError]()
    accepted = threading.Event()

    def accept(handler: BaseHTTPRequestHandler, number: int) -> None:
        reply(handler, 200)
        accepted.set()

    web.answer = accept
    thread = threading.Thread(target=db.run_schedules, args=(stop,), kwargs={"on_error": errors.append})
    thread.start()
    assert accepted.wait(60)
    stop.set()
    thread.join(60)
    assert (thread.is_alive(), errors) == (False, [])
    assert web.events()[0] == ("raised", "rpo_missed", "c")


def test_statements_on_alarms(opened: Opened, web: WebReceiver, clock: ManualClock) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE)
    assert db.sql("SHOW ALARMS").rows() == []
    clock.sleep(27 * HOUR)
    db.check_alarms()
    shown = db.sql("SHOW ALARMS")
    assert shown.columns == (
        *("kind", "subject", "level", "message", "hint", "raised_at", "acknowledged_at", "acknowledged_by"),
        *("last_sent", "times_sent", "cleared_at"),
    )
    (row,) = shown.rows()
    assert (*row[:3], row[9]) == ("rpo_missed", "c", "critical", 1)
    db.sql("ACKNOWLEDGE ALARM 'rpo_missed' FOR `c`; BACKUP c")
    clock.sleep(LOOK_SECONDS)
    db.check_alarms()
    assert db.sql("SHOW ALARMS").rows() == []
    assert len(db.sql("SHOW ALARMS ALL").rows()) == 1


def test_a_catalog_that_cannot_be_reached_is_reported_and_the_loop_goes_on(
    opened: Opened, web: WebReceiver, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = opened(settings=to(web))
    db.sql(MAKE)
    monkeypatch.setattr(loop, "POLL_SECONDS", 0.01)
    stop, errors = threading.Event(), list[StrandlineError]()
    board = board_of(db)
    ticks, tick = iter(range(3)), board.tick

    def fail_twice() -> Any:
        if next(ticks, 2) < 2:
            raise PreconditionFailed("the catalog is away")
        stop.set()
        return tick()

    board.tick = fail_twice  # type: ignore[method-assign]
    loop.run_alarms(db, board, stop, on_sent=lambda sent: None, on_error=errors.append)
    assert [error.message for error in errors] == ["the catalog is away"] * 2


def test_an_unknown_channel_is_refused(opened: Opened, web: WebReceiver) -> None:
    db = opened(settings=to(web))
    with pytest.raises(InvalidArgument, match="there is no channel 'op'") as refused:
        db.test_alarm_channel("op")
    assert refused.value.hint == "Did you mean 'ops'?"


@pytest.mark.slow
def test_alarms_with_a_catalog_in_postgresql(
    opened: Opened, web: WebReceiver, clock: ManualClock, emptied_database: str
) -> None:
    db = opened(settings=to(web), catalog=emptied_database)
    other = opened(settings=to(web), catalog=emptied_database)
    db.sql(MAKE)
    boards = [board_of(db), board_of(other)]
    clock.sleep(27 * HOUR)
    for board in boards:
        board.tick()
    other.sql("ACKNOWLEDGE ALARM rpo_missed FOR c; BACKUP c")
    clock.sleep(LOOK_SECONDS)
    for board in boards:
        board.tick()
    assert web.events() == [("raised", "rpo_missed", "c"), ("resolved", "rpo_missed", "c")]
    assert other.alarms() == [] and len(db.alarms(cleared=True)) == 1
    clock.sleep(31 * DAY)
    db.maintain()
    assert db.alarms(cleared=True) == []
