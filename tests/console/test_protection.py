"""Problems and alarms are one list; what belongs together is joined by kind and subject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from strandline import Attention, Database
from strandline.server.console.protection import Concern, concerns_of
from tests.console.conftest import LogIn
from tests.console.reading import get, page_of, submit
from tests.console.shop import Shop


@dataclass(frozen=True)
class Raised:
    """An alarm as ``db.alarms()`` returns it."""

    kind: str
    subject: str
    level: str = "critical"
    message: str = "it has no backup"
    hint: str = "Take one."
    raised_at: float = 5.0
    acknowledged_at: float | None = None
    acknowledged_by: str | None = None


def test_a_problem_without_an_alarm_stays_as_it_is() -> None:
    problem = attention()
    assert concerns_of([problem], []) == [
        Concern(level="critical", about="nightly", message="it has no backup", hint="Take one.")
    ]


def test_an_alarm_whose_problem_has_ended_is_still_shown() -> None:
    (found,) = concerns_of([], [Raised("no_backup", "nightly", acknowledged_at=6.0, acknowledged_by="ada")])
    assert (found.about, found.since, found.acknowledged_by) == ("nightly", 5.0, "ada")


def attention() -> Attention:
    given: dict[str, Any] = {
        "level": "critical",
        "about": "nightly",
        "message": "it has no backup",
        "hint": "Take one.",
    }
    if "kind" in Attention.__dataclass_fields__:
        given |= {"kind": "no_backup", "subject": "nightly"}
    return Attention(**given)


@pytest.mark.skipif(not hasattr(Database, "alarms"), reason="this version has no alarms")
def test_an_alarm_is_acknowledged_on_the_overview(empty_shop: Shop, log_in: LogIn) -> None:
    db: Any = empty_shop.db
    db.sql("CREATE TABLE t (k Int64 NOT NULL, PRIMARY KEY (k))")
    db.create_collection("nightly", tables=["t"])
    db.check_alarms()
    assert len(db.alarms()) == 1
    assert get(log_in(empty_shop, "read"), "/").labels() == ["Log out"]
    client = log_in(empty_shop, "operate")
    page = get(client, "/")
    assert "Alarm since" in page.text
    after = page_of(submit(client, page, "Acknowledge"))
    assert "acknowledged by operate token" in after.text
    assert db.alarms()[0].acknowledged_by == "operate token"
    assert db.audit()[0].action == "Database.acknowledge_alarm"
