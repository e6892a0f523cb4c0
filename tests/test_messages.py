"""What errors say has one form everywhere: the message is a sentence that begins in lower case and has no
full stop, the hint one that begins with a capital and has it."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pytest

from strandline import errors

SOURCE = Path(__file__).resolve().parent.parent / "src" / "strandline"
KINDS = frozenset(errors.__all__)
FREE = "\0"
"""What stands in a text for a value that is put into it."""


class Said(NamedTuple):
    place: str
    message: str | None
    hint: str | None


HELPERS = ("fault", "unsupported", "refuse")
"""Functions and methods that make errors of what they are given."""


def said() -> Iterator[Said]:
    """What every call in the source that makes an error says, as far as it is written there."""
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and _name(node.func) in (*KINDS, *HELPERS):
                place = f"{file.relative_to(SOURCE)}:{node.lineno}"
                message, hint = _told(node, place)
                yield from (Said(place, text, None) for text in _texts(message))
                yield from (Said(place, None, text) for text in _texts(hint))


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _told(call: ast.Call, place: str) -> tuple[ast.expr | None, ast.expr | None]:
    """The message and the hint that a call is given."""
    args, given = dict(enumerate(call.args)), {keyword.arg: keyword.value for keyword in call.keywords}
    match _name(call.func), isinstance(call.func, ast.Name):
        case "refuse", _ if "spark" in place:  # kind, hint, parts of the message
            return reduce(lambda left, right: ast.BinOp(left, ast.Add(), right), call.args[2:]), args.get(1)
        case "refuse", _:  # type, value, column, hint
            return None, args.get(3)
        case "fault", True:  # text, offset, message, hint
            return args.get(2), args.get(3, given.get("hint"))
        case _:
            return args.get(0, given.get("message")), args.get(1, given.get("hint"))


def _texts(node: ast.expr | None) -> list[str]:
    """The literal texts that an expression may have, with a mark for each value in them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(p.value) if isinstance(p, ast.Constant) else FREE for p in node.values)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        pairs = itertools.product(_texts(node.left) or [FREE], _texts(node.right) or [FREE])
        return [left + right for left, right in pairs]
    if isinstance(node, ast.IfExp):
        return _texts(node.body) + _texts(node.orelse)
    return []


def wrong_message(text: str) -> str | None:
    """What is wrong with a message. A name may begin it as it is written: SELECT, PARTITION_AT_KEYS, Int64,
    Spark."""
    first = text.split()[0] if text.split() else ""
    if re.match(r"[A-Z][a-z]*\b", first) and first not in NAMES:
        return "begins with a capital"
    if text.endswith(".") and not text.endswith("..."):
        return "ends with a full stop"
    if re.search(r"[^.]\. [A-Z]", text):
        return "is more than one sentence"
    return None


def wrong_hint(text: str) -> str | None:
    if not re.match(rf"[A-Z{FREE}]", text):
        return "does not begin with a capital"
    if not re.search(rf"[.?!{FREE}]$", text):
        return "does not end with a full stop"
    return None


NAMES = {"Spark", "SQLite", "PostgreSQL", "Java", "Strandline", "Arrow", "Parquet"}


def test_errors_are_found() -> None:
    found = list(said())
    assert len([s for s in found if s.message]) > 200
    assert len([s for s in found if s.hint]) > 200
    assert {s.place.split("/")[0] for s in found} >= {
        "api",
        "backups",
        "catalog",
        "cli",
        "sql",
        "storage",
        "tables",
    }


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ("the file x is missing", None),
        ("The file x is missing", "begins with a capital"),
        ("the file x is missing.", "ends with a full stop"),
        ("it is missing. Look for it", "is more than one sentence"),
        (f"{FREE} is missing", None),
        ("SELECT needs a table", None),
    ],
)
def test_what_is_wrong_with_a_message_is_noticed(message: str, wrong: str | None) -> None:
    assert wrong_message(message) == wrong


@pytest.mark.parametrize(
    ("hint", "wrong"),
    [
        ("Look for it.", None),
        ("look for it.", "does not begin with a capital"),
        ("Look for it", "does not end with a full stop"),
        (f"The form is: {FREE}", None),
    ],
)
def test_what_is_wrong_with_a_hint_is_noticed(hint: str, wrong: str | None) -> None:
    assert wrong_hint(hint) == wrong


def test_every_message_and_every_hint_has_its_form() -> None:
    messages = [(s.place, s.message, wrong_message(s.message)) for s in said() if s.message]
    hints = [(s.place, s.hint, wrong_hint(s.hint)) for s in said() if s.hint]
    complaints = [f"{place}: {text!r} {wrong}" for place, text, wrong in messages + hints if wrong]
    assert complaints == [], "\n".join(complaints)


def test_the_general_hints_have_their_form() -> None:
    assert [wrong_hint(getattr(errors, name).default_hint) for name in errors.__all__] == [None] * len(KINDS)
