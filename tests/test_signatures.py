"""No call has to be read by counting commas: a function or a constructor takes five arguments by position at
most, and the others by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "strandline"
MOST = 5


def by_position(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The functions and dataclasses of a module, with how many arguments each takes by position."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            yield node.name, len(given) - (given[:1] in (["self"], ["cls"]))
        elif isinstance(node, ast.ClassDef) and (options := _dataclass(node)) is not None:
            yield node.name, 0 if "kw_only" in options else sum(1 for _ in _positional_fields(node))


def _dataclass(node: ast.ClassDef) -> set[str | None] | None:
    """The options that a dataclass is declared with, None for another class."""
    for decorator in node.decorator_list:
        called = decorator if isinstance(decorator, ast.Call) else None
        if ast.unparse(called.func if called else decorator) in ("dataclass", "dataclasses.dataclass"):
            return {keyword.arg for keyword in called.keywords} if called else set()
    return None


def _positional_fields(node: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    for line in node.body:
        if not isinstance(line, ast.AnnAssign) or "ClassVar" in ast.unparse(line.annotation):
            continue
        if "KW_ONLY" in ast.unparse(line.annotation):
            return
        options = line.value.keywords if isinstance(line.value, ast.Call) else []
        if not any(option.arg in ("init", "kw_only") for option in options):
            yield line


def test_nothing_takes_more_than_five_arguments_by_position() -> None:
    long = [
        (f"{path.relative_to(PACKAGE).as_posix()}: {name}", count)
        for path in sorted(PACKAGE.rglob("*.py"))
        for name, count in by_position(ast.parse(path.read_text("utf-8")))
        if count > MOST
    ]
    wrong = [f"{place} takes {count}" for place, count in long]
    assert not wrong, "put a * into the list, or kw_only=True into the dataclass:\n" + "\n".join(wrong)


def test_no_named_tuple_is_made_of_more_than_five_values_by_position() -> None:
    """Of a row of the catalog it may be made as a whole."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    tuples = {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and "NamedTuple" in map(ast.unparse, node.bases)
    }
    assert "NewPart" in tuples
    wrong = [
        f"{path.relative_to(PACKAGE).as_posix()}:{node.lineno}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in tuples and len(node.args) > MOST
    ]
    assert not wrong, "name them:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("def f(a, b, /, c, *, d): ...", 3),
        ("async def f(a, *rest, b): ...", 1),
        ("class C:\n    def f(self, a): ...", 1),
        ("class C:\n    @classmethod\n    def f(cls, a, b): ...", 2),
        ("@dataclass\nclass C:\n    a: int\n    b: int = 1", 2),
        ("@dataclass(frozen=True)\nclass C:\n    a: int\n    _: KW_ONLY\n    b: int", 1),
        ("@dataclass(kw_only=True)\nclass C:\n    a: int", 0),
        (
            "@dataclass\nclass C:\n    A: ClassVar[int] = 1\n    b: int = field(init=False)\n    c: int = field(default=1)",
            1,
        ),
    ],
)
def test_how_they_are_counted(text: str, count: int) -> None:
    assert [found for _, found in by_position(ast.parse(text))] == [count]
