"""A class is the only one of its name, so that a name says which one is meant wherever it is read."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "strandline"


def classes() -> dict[str, list[str]]:
    """Where classes are defined, by their names."""
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path.relative_to(PACKAGE).as_posix())
    return found


def test_no_two_classes_have_one_name() -> None:
    twice = {name: places for name, places in classes().items() if len(places) > 1}
    wrong = [f"{name}: {', '.join(places)}" for name, places in twice.items()]
    assert not wrong, "\n".join(wrong)
