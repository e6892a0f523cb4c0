"""An import only points downwards, and Spark stays where it belongs."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

# In one worker, so that the sources are parsed once.
pytestmark = pytest.mark.xdist_group("layers")

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "strandline"

ROOT = "strandline"
"""The package itself, whose ``__init__`` re-exports the public API.

It may import anything, and only what is above it may import it."""

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "version", "cancellation"}),
    frozenset({"types", "records", "json_values"}),
    frozenset({"model", "settings", "clock", "metrics", "lru", "chunks", "gc_pause"}),
    frozenset({"names", "retry", "threads", "background"}),
    frozenset({"catalog", "storage", "sql"}),
    frozenset({"runtime"}),
    frozenset({"operations", "tables"}),
    frozenset({"backups"}),
    frozenset({"schedules", "alarms"}),
    frozenset({"api"}),
    frozenset({ROOT}),
    frozenset({"demo", "dbapi", "duckdb", "notebook", "server"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)
"""From bottom to top. A unit is a module or a folder of ``strandline``. It imports itself and the layers
below its own, not its neighbours."""

LEVEL = {unit: level for level, units in enumerate(LAYERS) for unit in units}

ENGINES = ("arrow", "spark")
"""The two folders of ``storage`` that do the same work for few rows and for many."""

DOORS = {"storage/store.py", "storage/checks.py", "storage/queries.py", "storage/frames.py"}
"""Who may ask an engine: the store with its parts, and what is done with a DataFrame whatever store it is
of."""

BUILT_ON = {
    (
        "storage/spark/scan.py",
        "strandline.storage.arrow.replaced_rows.fold_logs",
    ): "small logs, inside the plan",
    (
        "storage/spark/scan.py",
        "strandline.storage.arrow.replaced_rows.find_replaced",
    ): "their rows, by position",
    ("storage/spark/compact.py", "strandline.storage.arrow.lookup.touched_keys"): "the keys of a small log",
}
"""Where one engine truly builds on the other, and for what."""

MIRRORED = (
    "changes",
    "check",
    "compact",
    "digest",
    "entries",
    "feed",
    "index_changes",
    "scan",
    "segment_files",
    "unique",
    "write",
)
"""The modules that both engines have."""

THRESHOLDS = {"bulk_rows", "bulk_bytes", "scan_rows", "inline_rows", "inline_bytes", "target_file_bytes"}
"""Settings that say from how many rows or bytes on something is done in another way."""

SLOW_OR_OPTIONAL = {
    *(
        "boto3",
        "cattrs",
        "cryptography",
        "deltalake",
        "duckdb",
        "fastapi",
        "jinja2",
        "numpy",
        "obstore",
        "prometheus_client",
        "pyiceberg",
    ),
    *("pyspark", "rich", "sqlglot", "tomli", "tomllib", "uvicorn"),
}
"""Libraries that take long to load, or need not be there: whoever comes to them loads them."""

LATE = {
    "api/": "what is answered from the catalog alone loads neither Arrow nor operations nor SQL",
    "backups/repository/place_check.py": "what encryption needs",
    "backups/repository/repository.py": "what encryption needs",
    "catalog/connection.py": "Alembic, which only a catalog needs that is made or older",
    "catalog/fork_safety.py": "what only a fork needs",
    "cli/": "a command loads what it does, not what others do",
    "dbapi/dialect.py": "SQLAlchemy asks for it",
    "runtime.py": "what a process holds is loaded by the first who asks for it",
    "storage/checks.py": "the door to Spark",
    "storage/file_router.py": "what only backups in repositories need",
    "storage/external/": "each kind of files by who reads it",
    "storage/files.py": "what only a folder needs that is replaced",
    "storage/frames.py": "the door to Spark",
    "storage/location.py": "what only URLs need",
    "storage/repository_marker.py": "what encryption needs",
    "storage/outgoing/targets.py": "what only tables of lakes need",
    "storage/queries.py": "the door to Spark",
    "storage/spark/batches.py": "the function is sent to executors",
    "storage/store.py": "the door to Spark",
    "tables/process_query.py": "what only queries need that Arrow does not answer",
    "types/": "names of types are told without Arrow; a function that is sent to executors",
}
"""Where modules of ours are imported inside functions, and why. Elsewhere imports are at the top."""

PROCESS_WIDE = {
    "api/source/warehouse_cache.py _opened": "a process of Spark's has no other owner",
    "api/source/register.py _known": "a Spark session is one for the process; weak",
    "catalog/fork_safety.py _engines": "a fork copies the whole process; weak",
    "catalog/fork_safety.py _connections": "the same",
    "catalog/fork_safety.py _inherited": "the same",
    "catalog/paths.py _path_query": "of a number alone",
    "gc_pause.py _inside": "the switch of Python's collector is one for the process",
    "gc_pause.py _was_on": "the same",
    "records.py _FORMS": "values that know their form say so when their module is loaded",
    "records.py _converter": "made of the classes alone",
    "server/models.py request_model": "of a method alone",
    "server/models.py response_model": "of a type alone",
    "storage/objects.py _user": "a fork copies the whole process",
    "storage/buffers.py _spare": "memory, with nothing in it, of at most 16 pieces",
    "storage/spark/jobs.py _tags": "a note on a Work, which ends with it",
    "storage/spark/probe.py _probed": "a Spark session is one for the process; weak",
    "storage/spark/session.py _lent": "a Spark session is one for the process; weak",
    "storage/spark/shipping.py _archive": "executors fetch it as long as the process lives",
    "storage/spark/shipping.py _shipped": "a Spark session is one for the process; weak",
    "types/names.py parse_type": "of a text alone",
    "types/values.py _quantum": "of two numbers alone",
    "cancellation.py _local": "what each thread does",
    "cancellation.py _watchers": "who looks on at the main thread, of which there is one",
}
"""What modules hold, and why it belongs neither to a store nor to a catalog nor to a runtime."""

ENGINE_INTERNALS = {"_jvm", "sparkContext", "rdd"}
"""Not there with a Spark Connect server, so nothing may depend on them ..."""

CLASSIC = {"storage/spark/jobs.py"}
"""... except what asks first which of the two it is: jobs are known by other means here and there."""


@dataclass(frozen=True)
class Import:
    """``target`` is the full dotted name, ``eager`` is true if it runs when the module is loaded, ``typing``
    if it never runs."""

    target: str
    line: int
    eager: bool
    typing: bool = False

    def is_of(self, package: str) -> bool:
        return self.target == package or self.target.startswith(package + ".")


def unit_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return ROOT if first == "__init__.py" else first.removesuffix(".py")


def imports_of(tree: ast.Module, path: Path) -> Iterator[Import]:
    package = (ROOT, *path.relative_to(PACKAGE).parent.parts)

    def visit(node: ast.AST, eager: bool, typing: bool = False) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, eager, typing)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            for alias in node.names:
                yield Import(f"{module}.{alias.name}", node.lineno, eager, typing)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from visit(child, False, typing=True)
            for child in node.orelse:
                yield from visit(child, eager)
        else:
            inside = eager and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            for inner in ast.iter_child_nodes(node):
                yield from visit(inner, inside, typing)

    return visit(tree, True)


def unit_imported(target: str) -> str | None:
    """The unit that an import of ``target`` loads, None if it is not ours. A name that the package itself
    defines counts as the package."""
    first, _, rest = target.partition(".")
    if first != ROOT:
        return None
    unit = rest.partition(".")[0]
    exists = (PACKAGE / unit).is_dir() or (PACKAGE / f"{unit}.py").is_file()
    return unit if unit and (exists or unit in LEVEL) else ROOT


def may_import(unit: str, other: str) -> bool:
    return unit in (ROOT, other) or LEVEL[other] < LEVEL[unit]


@functools.cache
def modules() -> dict[Path, ast.Module]:
    """Not when this is loaded, as each worker does."""
    return {path: ast.parse(path.read_text("utf-8"), str(path)) for path in sorted(PACKAGE.rglob("*.py"))}


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(PACKAGE.parent.parent)}:{line}"


def test_every_unit_has_a_layer() -> None:
    unknown = sorted({unit_of(path) for path in modules()} - set(LEVEL))
    assert not unknown, (
        f"add {unknown} to the table LAYERS in {Path(__file__).name}, at the place where it belongs"
    )


def test_imports_only_point_downwards() -> None:
    wrong = []
    for path, tree in modules().items():
        unit = unit_of(path)
        for found in imports_of(tree, path):
            other = unit_imported(found.target)
            if other is None or unit not in LEVEL or other not in LEVEL:
                continue  # the test above names units without a layer
            if not may_import(unit, other):
                wrong.append(f"{where(path, found.line)}: {unit} must not import {other} ({found.target})")
    assert not wrong, "\n".join(wrong)


def test_the_catalog_owns_its_sql() -> None:
    """Others have a connection in their hands, and hand it back: no statement is built outside."""
    wrong = [
        f"{where(path, found.line)}: {found.target}"
        for path, tree in modules().items()
        if unit_of(path) != "catalog"
        and path != PACKAGE / "dbapi" / "dialect.py"  # Builds none: it is asked.
        for found in imports_of(tree, path)
        if found.is_of("strandline.catalog.sqltables")
        or (found.is_of("sqlalchemy") and found.target != "sqlalchemy.Connection")
    ]
    assert not wrong, "\n".join(wrong)


def test_catalog_and_sql_do_not_know_spark() -> None:
    wrong = [
        f"{where(path, found.line)}: {found.target}"
        for path, tree in modules().items()
        if unit_of(path) in ("catalog", "sql")
        for found in imports_of(tree, path)
        if found.is_of("pyspark")
    ]
    assert not wrong, "\n".join(wrong)


def test_spark_is_loaded_only_when_it_is_needed() -> None:
    wrong = [
        f"{where(path, found.line)}: {found.target} is loaded behind the store, elsewhere under TYPE_CHECKING only"
        for path, tree in modules().items()
        if not (name := path.relative_to(PACKAGE).as_posix()).startswith(("storage/spark/", "api/source/"))
        for found in imports_of(tree, path)
        if found.is_of("pyspark") and not found.typing and (found.eager or name not in DOORS)
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_inside_functions_have_a_reason() -> None:
    late = {
        (path.relative_to(PACKAGE).as_posix(), found.line, found.target)
        for path, tree in modules().items()
        for found in imports_of(tree, path)
        if not found.eager and not found.typing and found.target.partition(".")[0] not in SLOW_OR_OPTIONAL
    }
    wrong = [f"{name}:{line}: {target}" for name, line, target in late if not name.startswith(tuple(LATE))]
    assert not wrong, "import it at the top, or say in LATE why not:\n" + "\n".join(sorted(wrong))
    unused = [place for place in LATE if not any(name.startswith(place) for name, _, _ in late)]
    assert not unused, f"a reason is left over: {unused}"


def state_of(tree: ast.Module) -> Iterator[str]:
    """Yield the names of what a module holds that can change: containers, what functions rebind, caches of
    results."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield from (
                node.name for how in node.decorator_list if re.search(r"\b(lru_)?cache\b", ast.unparse(how))
            )
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            made = ast.unparse(node.value)
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if made in ("{}", "[]") or re.match(
                r"(set|dict|list|threading\.local|weakref\.\w+)\b.*\(\)$", made
            ):
                yield ast.unparse(target)
    for inner in ast.walk(tree):
        if isinstance(inner, ast.Global):
            yield from inner.names


def test_what_a_process_holds_for_itself_has_a_reason() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()} {name}"
        for path, tree in modules().items()
        for name in state_of(tree)
    }
    assert found == set(PROCESS_WIDE), "let a store, a catalog or a runtime own it, or say why not"


def test_what_a_module_holds_is_found() -> None:
    text = """
A = {}
b: list[int] = []
c: set[str] = set()
d = weakref.WeakSet()
e = None
F = {"x": 1}
@functools.cache
def f(): ...
class Own:
    @cached_property
    def g(self): ...
def h():
    global e
"""
    assert sorted(state_of(ast.parse(text))) == ["A", "b", "c", "d", "e", "f"]


def imported_engine(target: str) -> str | None:
    """The engine that an import of ``target`` loads, if any."""
    for engine in ENGINES:
        if target == f"strandline.storage.{engine}" or target.startswith(f"strandline.storage.{engine}."):
            return engine
    return None


def test_only_the_store_asks_an_engine() -> None:
    wrong = []
    for path, tree in modules().items():
        name = path.relative_to(PACKAGE).as_posix()
        own = name.split("/")[1] if name.startswith(("storage/arrow/", "storage/spark/")) else None
        for found in imports_of(tree, path):
            engine = imported_engine(found.target)
            if engine in (None, own) or name in DOORS or (name, found.target) in BUILT_ON:
                continue
            wrong.append(f"{where(path, found.line)}: {found.target} is behind the store")
    assert not wrong, "\n".join(wrong)


def test_what_is_said_to_build_on_the_other_engine_does() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), found.target)
        for path, tree in modules().items()
        for found in imports_of(tree, path)
    }
    assert set(BUILT_ON) <= found


@pytest.mark.parametrize("name", MIRRORED)
def test_both_engines_offer_the_same(name: str) -> None:
    arrow, spark = (public_functions(PACKAGE / "storage" / engine / f"{name}.py") for engine in ENGINES)
    assert arrow
    assert arrow == spark


def test_modules_of_the_same_name_are_mirrored() -> None:
    arrow, spark = ({path.stem for path in (PACKAGE / "storage" / e).glob("*.py")} for e in ENGINES)
    assert (arrow & spark) - {"__init__"} == set(MIRRORED)


def public_functions(path: Path) -> set[str]:
    """What a module lists in ``__all__``, all of which must be functions of its own."""
    tree = modules()[path]
    listed = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(listed) <= functions
    return set(listed)


def test_only_the_store_knows_from_how_many_rows_on() -> None:
    wrong = [
        f"{where(path, node.lineno)}: {node.attr}"
        for path, tree in modules().items()
        if unit_of(path) != "storage"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (node.attr in THRESHOLDS and ast.unparse(node.value).endswith("settings"))
    ]
    assert not wrong, "\n".join(wrong)


def test_spark_is_used_through_the_dataframe_api_only() -> None:
    wrong = []
    for path, tree in modules().items():
        if path.relative_to(PACKAGE).as_posix() in CLASSIC:
            continue
        for node in ast.walk(tree):
            name: object = None
            if isinstance(node, ast.Attribute):
                name = node.attr
            elif isinstance(node, ast.Name):
                name = node.id
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 1:
                name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
            if isinstance(node, ast.expr) and name in ENGINE_INTERNALS:
                wrong.append(f"{where(path, node.lineno)}: {name} is not there with Spark Connect")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("unit", "other", "allowed"),
    [
        ("model", "types", True),
        ("types", "model", False),
        ("catalog", "catalog", True),
        ("catalog", "storage", False),
        ("operations", "tables", False),
        ("backups", "tables", True),
        ("operations", "backups", False),
        ("storage", ROOT, False),
        ("demo", ROOT, True),
        ("cli", "api", True),
        ("api", "cli", False),
        (ROOT, "cli", True),
    ],
)
def test_the_rule_itself(unit: str, other: str, allowed: bool) -> None:
    assert may_import(unit, other) is allowed


def test_imports_are_found_wherever_they_are_written() -> None:
    text = """
from typing import TYPE_CHECKING
from . import tables
from ..storage.order import select_overlapping
if TYPE_CHECKING:
    from pyspark.sql import DataFrame
def later():
    import strandline.api
class Now:
    import pyspark
"""
    found = {(i.target, i.eager) for i in imports_of(ast.parse(text), PACKAGE / "catalog" / "example.py")}
    assert found == {
        ("typing.TYPE_CHECKING", True),
        ("strandline.catalog.tables", True),
        ("strandline.storage.order.select_overlapping", True),
        ("pyspark.sql.DataFrame", False),
        ("strandline.api", False),
        ("pyspark", True),
    }
