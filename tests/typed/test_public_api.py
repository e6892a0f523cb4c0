"""The typed script does what it says and uses every public name. ``make types`` checks it strictly."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import strandline
from tests.typed import public_api

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
SOURCE = Path(public_api.__file__).read_text("utf-8")


def test_the_script_runs(tmp_path: Path) -> None:
    public_api.main(str(tmp_path / "warehouse"))


def test_everything_that_is_documented_is_exported() -> None:
    documented = set(re.findall(r"^::: strandline\.(\w+)$", PAGE, re.MULTILINE))
    assert set(re.findall(r"^::: strandline\.([\w.]+)$", PAGE, re.MULTILINE)) == documented
    assert documented - {"duckdb"} == set(strandline.__all__) - {"__version__", "errors", "Settings"}


def test_the_script_uses_every_public_name() -> None:
    names = {node.id for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.Attribute)}
    assert [name for name in strandline.__all__ if name not in names] == []


@pytest.mark.parametrize(
    "name", ["Database", "Collection", "Table", "Operation", "OpenBackup", "BackupTable"]
)
def test_the_script_uses_every_method(name: str) -> None:
    used = {node.attr for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.Attribute)}
    methods = {method for method, _ in inspect.getmembers(getattr(strandline, name)) if method[0] != "_"}
    assert methods - used == set()


def test_the_types_of_the_script_are_checked_without_an_exception() -> None:
    assert "type: ignore" not in SOURCE
    assert "Any" not in re.findall(r"\w+", SOURCE)
