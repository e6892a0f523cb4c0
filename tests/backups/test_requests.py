"""Requests of statements: each word of a statement is in its request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.backups.restore.restore_request import restore_request
from strandline.backups.verify.verify_request import VerifyRequest, verify_settings
from strandline.errors import InvalidArgument
from strandline.settings import Limits
from strandline.sql import statements as st
from strandline.sql.parser import parse

USUAL = Limits(bytes_per_second=5.0, copies=3)
PLAIN = RestoreRequest(collection="c", limits=USUAL)


def restore(text: str) -> RestoreRequest:
    (statement,) = parse(f"RESTORE c {text}")
    assert isinstance(statement, st.Restore)
    return restore_request(statement, USUAL)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", PLAIN),
        ("AT '20260101120000Z_full'", replace(PLAIN, at="20260101120000Z_full")),
        ("AT TIMESTAMP '1970-01-01T00:01:40Z'", replace(PLAIN, not_after=100.0)),
        ("AT 17", replace(PLAIN, not_after_step=17)),
        ("TABLE t, TABLE `d/u` AS v", replace(PLAIN, tables=(("/t", None), ("/d/u", "/v")))),
        ("INTO 'r'", replace(PLAIN, into="/r")),
        ("WITH (VERIFY = 'data')", replace(PLAIN, verify=True)),
        ("WITH (VERIFY = 'digests', MODE = 'reference')", PLAIN),
        ("WITH (MODE = 'copy')", replace(PLAIN, copy=True)),
        ("WITH (REPLACE = 'true')", replace(PLAIN, replace=True)),
        ("WITH (REPLACE = 'FALSE', CHANGEFEEDS = 'false')", PLAIN),
        ("WITH (CHANGEFEEDS = 'true')", replace(PLAIN, changefeeds=True)),
        ("WITH (DEADLINE = 0.5)", replace(PLAIN, deadline_seconds=0.5)),
        ("WITH (DEADLINE = '999999999')", replace(PLAIN, deadline_seconds=999_999_999.0)),
        ("WITH (COPIES = 1000)", replace(PLAIN, limits=Limits(bytes_per_second=5.0, copies=1000))),
        ("WITH (COPIES = 1)", replace(PLAIN, limits=Limits(bytes_per_second=5.0, copies=1))),
        ("WITH (MAX_BYTES_PER_SECOND = 0)", replace(PLAIN, limits=Limits(bytes_per_second=0.0, copies=3))),
        ("WITH (MAX_BYTES_PER_SECOND = 7.5)", replace(PLAIN, limits=Limits(bytes_per_second=7.5, copies=3))),
    ],
)
def test_what_a_restore_is_to_do(text: str, expected: RestoreRequest) -> None:
    assert restore(text) == expected


@pytest.mark.parametrize(
    "settings",
    [
        "DEADLINE = 0",
        "DEADLINE = -1",
        "DEADLINE = 1000000000",
        "DEADLINE = 'soon'",
        "MODE = 'data'",
        "REPLACE = 'maybe'",
        "COPIES = 0",
        "COPIES = 1001",
        "COPIES = 1.5",
        "MAX_BYTES_PER_SECOND = -1",
        "MAX_BYTES_PER_SECOND = 1000000000000001",
        "COPIES = 1, COPIES = 1",
    ],
)
def test_what_a_restore_cannot_do(settings: str) -> None:
    with pytest.raises(InvalidArgument):
        restore(f"WITH ({settings})")


def verify(settings: str) -> dict[str, Any]:
    (statement,) = parse(f"VERIFY c WITH ({settings})" if settings else "VERIFY c")
    assert isinstance(statement, st.Verify)
    return verify_settings(statement.settings)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", {"level": "checksums"}),
        ("LEVEL = 'chain'", {"level": "chain"}),
        ("SAMPLE = 20", {"level": "checksums", "sample": 20}),
        ("AGAIN = 'true'", {"level": "checksums", "again": True}),
        ("AGAIN = 'false', SAMPLE = 1", {"level": "checksums", "again": False, "sample": 1}),
    ],
)
def test_what_a_statement_verifies(settings: str, expected: dict[str, Any]) -> None:
    assert verify(settings) == expected
    assert type(verify(settings).get("sample", 1)) is int


def request(**given: Any) -> VerifyRequest:
    return VerifyRequest.of("c", **{"at": None, "level": None, "sample": None, "again": None, **given})


def test_what_is_verified_without_a_word_about_it() -> None:
    """Every byte, whatever was verified before. With a level or a sample, only what is new."""
    assert request() == VerifyRequest(collection="c", at=None, level="checksums", sample=None, again=True)
    assert (request(level="files").level, request(level="files").again) == ("files", False)
    assert [request(sample=n).again for n in (1, 100)] == [False, False]
    assert request(sample=100).sample == 100
    assert [request(again=again).again for again in (True, False)] == [True, False]
    assert request(at="b").at == "b"


@pytest.mark.parametrize("given", [{"level": "all"}, *({"sample": n} for n in (0, 101, True, 1.5, "1"))])
def test_what_cannot_be_verified(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        request(**given)
