"""Generate mutants: small changes of functions that a test should detect, made in the syntax tree."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Add, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
FOR_READERS = ("event", "log.", "logging.", "warnings.")
"""Calls that begin like this only write messages for people."""

ASSERTIONS = ("strict",)
"""Arguments of these names state what must hold anyway, like ``assert``."""


@dataclass(frozen=True)
class Mutant:
    """One change of one function.

    Args:
        lines: where the change is.
        number: the position of the change among all changes of the function.
        twin: the position among changes that look alike.
    """

    file: str
    function: str
    number: int
    before: str
    after: str
    lines: tuple[int, int]
    twin: int = 1

    @property
    def name(self) -> str:
        """Name in lists. It stays the same when other lines move."""
        which = f" #{self.twin}" if self.twin > 1 else ""
        return f"{self.file} {self.function}: {_short(self.before)} -> {_short(self.after)}{which}"


def _short(text: str) -> str:
    one_line = " ".join(text.split()).replace("|", "¦").replace("`", "'")
    return one_line if len(one_line) <= 90 else f"{one_line[:60]} ... {one_line[-25:]}"


def mutants(root: Path, file: Path) -> list[Mutant]:
    """Return all mutants of the functions of a module."""
    tree = ast.parse(file.read_text("utf-8"))
    name, found = file.relative_to(root).as_posix(), []
    for function, path in functions(tree):
        seen: Counter[tuple[str, str]] = Counter()
        for number, (node, changed) in enumerate(_changes(function)):
            lines = (node.lineno, node.end_lineno or node.lineno)  # type: ignore[attr-defined]
            texts = ast.unparse(node), ast.unparse(changed)
            seen[texts] += 1
            found.append(Mutant(name, path, number, *texts, lines, seen[texts]))
    return found


def mutated(file: Path, mutant: Mutant) -> tuple[CodeType, CodeType]:
    """Return the code of the function without and with the change."""
    made = []
    for is_changed in (False, True):
        tree = ast.parse(file.read_text("utf-8"))
        (function,) = (f for f, path in functions(tree) if path == mutant.function)
        if is_changed:
            node, changed = next(each for i, each in enumerate(_changes(function)) if i == mutant.number)
            _Put(node, changed).visit(function)
            ast.fix_missing_locations(tree)
        at = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        made.append(_code_at(compile(tree, str(file), "exec", dont_inherit=True), function.name, at))
    return made[0], made[1]


class _Put(ast.NodeTransformer):
    def __init__(self, node: ast.AST, changed: ast.AST) -> None:
        self._node, self._changed = node, changed

    def visit(self, node: ast.AST) -> ast.AST:
        return ast.copy_location(self._changed, node) if node is self._node else self.generic_visit(node)


def _code_at(code: CodeType, name: str, line: int) -> CodeType:
    left = [code]
    while left:
        here = left.pop()
        if (here.co_name, here.co_firstlineno) == (name, line):
            return here
        left += [each for each in here.co_consts if isinstance(each, CodeType)]
    raise LookupError(f"{name} in line {line}")


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[Function, str]]:
    """Yield the functions of a module and of its classes.

    Nested functions belong to the function that contains them. Of two functions with the same name (a
    property and its setter) only the first is returned.
    """
    seen = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function) and prefix + node.name not in seen and not _is_abstract(node):
            seen.add(prefix + node.name)
            yield node, prefix + node.name
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")


def _is_abstract(function: Function) -> bool:
    return any(
        "abstractmethod" in ast.unparse(d) or "overload" in ast.unparse(d) for d in function.decorator_list
    )


def _changes(function: Function) -> Iterator[tuple[ast.AST, ast.AST]]:
    for statement in function.body:
        yield from _of(statement)


def _of(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield each node with its replacements, recursively."""
    if isinstance(node, ast.Assert) or (isinstance(node, ast.Expr) and _is_for_readers(node.value)):
        return
    if isinstance(node, ast.Raise):
        yield node, ast.Pass()
        return  # The error message is for people.
    yield from ((node, changed) for changed in _instead(node))
    skipped = _annotations(node)
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from _of(child)


def _is_for_readers(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return True
    return isinstance(value, ast.Call) and ast.unparse(value.func).startswith(FOR_READERS)


def _annotations(node: ast.AST) -> list[ast.AST]:
    """Return the children that are not executed, or that only state what must hold."""
    if isinstance(node, ast.Call):
        return [keyword for keyword in node.keywords if keyword.arg in ASSERTIONS]
    if isinstance(node, ast.AnnAssign):
        return [node.annotation]
    if isinstance(node, Function):
        return [node.args, *([node.returns] if node.returns else []), *node.decorator_list]
    return [node.args] if isinstance(node, ast.Lambda) else []


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[only]) if type(only) in COMPARED:
            yield _with(node, ops=[COMPARED[type(only)]()])
        case ast.BoolOp():
            yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield copy.deepcopy(node.operand)
        case ast.BinOp() | ast.AugAssign() if type(node.op) in COMPUTED:
            yield _with(node, op=COMPUTED[type(node.op)]())
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float() as number):
            yield ast.Constant(number + 1)
        case ast.If() | ast.IfExp() if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield _with(node, test=ast.UnaryOp(ast.Not(), copy.deepcopy(node.test)))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
        case ast.Call(keywords=given) if given:
            for number, keyword in enumerate(given):
                if keyword.arg is not None and keyword.arg not in ASSERTIONS:
                    yield _with(node, keywords=given[:number] + given[number + 1 :])


def _with(node: ast.AST, **fields: object) -> ast.AST:
    made = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made
