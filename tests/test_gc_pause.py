"""The collector of cycles is off while it is asked to be, and as it was afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from strandline.gc_pause import pause_gc


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.enable()


def test_it_is_off_inside_and_on_again_afterwards() -> None:
    with pause_gc():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_switches_it_on_again() -> None:
    with suppress(ValueError), pause_gc():
        raise ValueError
    assert gc.isenabled()


def test_who_had_it_off_keeps_it_off() -> None:
    gc.disable()
    with pause_gc():
        pass
    assert not gc.isenabled()


def test_the_last_one_to_leave_switches_it_on() -> None:
    first, second = ExitStack(), ExitStack()
    first.enter_context(pause_gc())
    second.enter_context(pause_gc())
    first.close()
    assert not gc.isenabled(), "the second one still wants it off"
    second.close()
    assert gc.isenabled()
