"""The size of the house: modules of each folder, lines of functions, imports inside them.

``python -m tools.numbers`` tells it of this tree, ``python -m tools.numbers FOLDER`` of another one.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "strandline"
LONG = 40


def lines_of(tree: ast.Module) -> Iterator[int]:
    """Yield how many lines each function has."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def imports_inside(node: ast.AST, inside: bool = False) -> Iterator[int]:
    """Yield the lines of imports inside functions."""
    if inside and isinstance(node, (ast.Import, ast.ImportFrom)):
        yield node.lineno
    inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    for child in ast.iter_child_nodes(node):
        yield from imports_inside(child, inside)


def main(package: Path) -> None:
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(package.rglob("*.py"))}
    folders = Counter(
        path.parent.relative_to(package).as_posix() for path in trees if path.name != "__init__.py"
    )
    late = Counter(
        path.relative_to(package).parts[0] for path, tree in trees.items() for _ in imports_inside(tree)
    )
    lines = sorted(count for tree in trees.values() for count in lines_of(tree))
    print(f"modules: {sum(folders.values())}")
    for folder, count in sorted(folders.items()):
        print(f"  {folder}: {count}")
    most = lines[int(0.95 * len(lines))]
    print(f"functions: {len(lines)}")
    print(f"  lines: {statistics.median(lines):g} (median), {statistics.mean(lines):.1f} (mean)")
    print(f"  95 % have at most {most} lines, {sum(n > LONG for n in lines)} have more than {LONG}")
    print(f"imports inside functions: {sum(late.values())}")
    for unit, count in sorted(late.items()):
        print(f"  {unit}: {count}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE)
