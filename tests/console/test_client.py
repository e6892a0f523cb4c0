"""The status that pages share."""

from __future__ import annotations

import threading

import pytest

from strandline import Status
from strandline.server.console import client
from strandline.server.console.client import RecentStatus
from tests.console.shop import Shop


class Counted:
    """A database whose status is computed when the test says so."""

    def __init__(self, shop: Shop) -> None:
        self._db = shop.db
        self.asked = 0
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def status(self) -> Status:
        self.asked += 1
        self.begun.set()
        assert self.go_on.wait(60)
        return self._db.status()


def test_the_status_is_computed_once_for_all_pages(empty_shop: Shop) -> None:
    db, recent = Counted(empty_shop), RecentStatus()
    first = recent.read(db)  # type: ignore[arg-type]
    assert recent.read(db) is first  # type: ignore[arg-type]
    assert db.asked == 1


def test_a_status_that_takes_long_keeps_nobody_waiting(
    empty_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "STATUS_SECONDS", 0.0)
    db, recent = Counted(empty_shop), RecentStatus()
    first = recent.read(db)  # type: ignore[arg-type]
    db.go_on.clear()
    db.begun.clear()
    slow = threading.Thread(target=recent.read, args=(db,))
    slow.start()
    assert db.begun.wait(60)
    assert recent.read(db) is first  # type: ignore[arg-type]
    db.go_on.set()
    slow.join()
    assert recent.read(db) is not first  # type: ignore[arg-type]
