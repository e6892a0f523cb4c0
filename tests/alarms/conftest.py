"""The fixtures of the tests of alarms: a warehouse in simulated time, and receivers on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from strandline import Database
from tests.alarms.receivers import MailReceiver, WebReceiver
from tests.catalogs import ManualClock
from tests.tables.conftest import connect

__all__ = ["connect"]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


@pytest.fixture
def web(stack: ExitStack) -> WebReceiver:
    return stack.enter_context(WebReceiver())


@pytest.fixture
def mail(stack: ExitStack) -> MailReceiver:
    return stack.enter_context(MailReceiver())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def opened(connect: Callable[..., Database], clock: ManualClock) -> Callable[..., Database]:
    """Open the same warehouse with a further connection, as another process would."""
    return lambda **options: connect("w", clock=clock, **options)
