"""Changed and signed texts of a repository: every field in many ways."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from strandline.storage.digest import checksum_of

Keys: TypeAlias = tuple[str | int, ...]
"""The position of a value in a JSON document."""


def body_of(path: Path) -> dict[str, Any]:
    """Return the content of a text of a repository, without its checksum."""
    body: dict[str, Any] = json.loads(path.read_text("utf-8"))
    body.pop("checksum", None)
    return body


def sign(body: Any) -> bytes:
    """Return the text of ``body`` with the right checksum."""
    text = json.dumps(body)
    if not text.endswith("}"):
        return text.encode()
    text = text[:-1]
    return f'{text}, "checksum": "{checksum_of(text.encode())}"}}\n'.encode()


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a text, and sign it again."""
    body = body_of(path)
    change(body)
    path.write_bytes(sign(body))


def places(value: Any, at: Keys = ()) -> Iterator[Keys]:
    """Yield the positions of all values, from the top."""
    yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*at, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places(inner, (*at, number))


def changes(body: dict[str, Any], added: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield a description and a document for each change of ``body`` in one place.

    Args:
        added: Fields that are added to every object.
    """
    for at in places(body):
        if at:
            yield f"{_said(at)} removed", _changed(body, at, _removed)
        value = _at(body, at)
        for wanted in _others(value, at, body):
            yield (
                f"{_said(at)} = {_shown(wanted)}",
                _changed(body, at, lambda holder, key, w=wanted: _put(holder, key, w)),
            )
        if isinstance(value, dict):
            for name, wanted in added.items():
                if name not in value:
                    yield (
                        f"{_said((*at, name))} = {_shown(wanted)}",
                        _changed(body, (*at, name), lambda holder, key, w=wanted: _put(holder, key, w)),
                    )
            for name in list(value)[:1]:
                for other in ("", "../x", "/a/../b", "\x00", "x" * 300, "\ud800"):
                    made = copy.deepcopy(body)
                    holder = _at(made, at)
                    holder[other] = holder.pop(name)
                    yield f"{_said((*at, name))} called {_shown(other)}", made


def _others(value: Any, at: Keys, body: dict[str, Any]) -> list[Any]:
    found: list[Any] = [None, True, "x", -1, 1.5, [], {}, [[]], {"a": {"b": 1}}]
    if isinstance(value, bool):
        found.append(not value)
    elif isinstance(value, int):
        found += [0, value - 1, value + 1, 2**31, 2**50, 2**53, 2**62, 2**63 - 1, 2**63, 10**30]
    elif isinstance(value, float):
        found += [float("nan"), float("inf"), 1e300, -1.0, 0.0]
    elif isinstance(value, str):
        found += [
            "",
            "\x00",
            "\ud800",
            "é",
            "x" * 300,
            f"{value}x",
            f"../{value}",
            f"/{value}",
            value.upper(),
        ]
        found += [
            value.replace("objects/", "../other/objects/", 1),
            value.replace("objects/", "objects/../", 1),
        ]
        found += [body.get("backup", {}).get("name", "y"), "99991231235959Z_full"]
    elif isinstance(value, list):
        found += [value + value, value[::-1], [value], value[:-1]]
    elif isinstance(value, dict):
        found += [{**value, "unknown": 1}]
    return [each for each in found if each != value or type(each) is not type(value)]


def _at(value: Any, at: Keys) -> Any:
    for key in at:
        value = value[key]
    return value


def _changed(body: dict[str, Any], at: Keys, change: Callable[[Any, Any], None]) -> Any:
    holder = {"": copy.deepcopy(body)}
    full: Keys = ("", *at)
    change(_at(holder, full[:-1]), full[-1])
    return holder[""]


def _put(holder: Any, key: Any, value: Any) -> None:
    holder[key] = value


def _removed(holder: Any, key: Any) -> None:
    del holder[key]


def _said(at: Keys) -> str:
    return ".".join(map(str, at)) or "all"


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) < 40 else f"{text[:40]}..."
