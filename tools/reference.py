"""Writes the pages of the reference that follow from the code: ``python -m tools.reference``. A test says
when they are out of date."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
MADE = "<!-- Made by `make reference` from the code. Change the code, not this page. -->\n\n"


def cli() -> str:
    import typer

    from strandline.cli.app import app

    root = typer.main.get_command(app)
    shared = [p for p in root.params if _is_shared(p)]
    parts = [
        "# The command line\n",
        "Results go to stdout, everything about them (progress, errors) to stderr. With `--json` a command\n"
        "prints one JSON document per result, and its form is stable; text for people may change. Whole\n"
        "numbers are JSON numbers, decimals with a fraction and times are text (times in UTC), bytes are\n"
        "base64. Exit codes are on the page about [errors](errors.md).\n",
        "## Options of every command\n\nThey may stand before the command or after it.\n",
        _table(("option", "meaning"), [(_names(p), p.help) for p in shared]),
        "\n`strandline --install-completion` makes the Tab key of your shell complete commands, options, "
        "paths and collections.\n",
    ]
    for name, command in _commands(root, "strandline"):
        own = [p for p in command.params if p.name != "help" and not _is_shared(p)]
        arguments = " ".join(_argument(p) for p in own if p.param_type_name == "argument")
        parts.append(f"## `{name}`\n\n{inspect.cleandoc(command.help or '')}\n")
        parts.append(f"```text\n{' '.join(filter(None, [name, '[OPTIONS]', arguments]))}\n```\n")
        if own:
            parts.append(
                _table(("argument or option", "meaning"), [(_names(p), p.help or "") for p in own]) + "\n"
            )
    return "\n".join(parts)


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _is_shared(parameter: Any) -> bool:
    from strandline.cli.options import EVERY_COMMAND

    return getattr(parameter, "rich_help_panel", None) == EVERY_COMMAND


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name.upper()) + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
    return f"`{names}{value}`"


def errors() -> str:
    from strandline import errors as module
    from strandline.cli import failures

    found = [getattr(module, name) for name in module.__all__]
    rows = [(f"`{e.code}`", e.exit_code, f"`{e.__name__}`", _first(e.__doc__), e.default_hint) for e in found]
    rows.sort(key=lambda row: (row[1], row[2]))
    return (
        "# Errors and exit codes\n\n"
        "Every error that reaches you is a subclass of `strandline.errors.StrandlineError`. It has a stable\n"
        "`code`, a `message` of one sentence, and a `hint` that says what to do; often the hint is more\n"
        "exact than the general one below. The command line prints both and ends with the exit code of the\n"
        "class.\n\n"
        + _table(("code", "exit code", "class", "cause", "cure"), rows)
        + "\n\nBeside these, the command line ends with\n\n"
        + _table(
            ("exit code", "when"),
            [
                (0, "all went well"),
                (
                    failures.USAGE,
                    "the command line itself is wrong: an unknown command or option, a missing argument",
                ),
                (failures.INTERRUPTED, "Ctrl-C, also when a running operation was left alone"),
            ],
        )
        + "\n"
    )


def settings() -> str:
    from strandline import settings as module

    tree = ast.parse(inspect.getsource(module))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
    rows: list[list[str]] = []
    for node in body:
        if isinstance(node, ast.AnnAssign):
            value = (
                ""
                if node.value is None
                else ast.unparse(node.value).replace("field(default_factory=dict)", "{}")
            )
            rows.append([f"`{ast.unparse(node.target)}`", f"`{value}`", ""])
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and rows:
            rows[-1][2] = _first(str(node.value.value))
    return (
        "# Settings\n\n"
        "Give them to `connect`: `strandline.connect(folder, settings=strandline.Settings(workers=8))`. "
        + _first(module.Settings.__doc__)
        + "\n\n"
        + _table(("setting", "default", "meaning"), rows)
        + "\n\n## The environment\n\n"
        + _table(
            ("variable", "meaning"),
            [
                ("`STRANDLINE_WAREHOUSE`", "the warehouse of the command line, unless `-w` names one"),
                (
                    "`STRANDLINE_CATALOG`",
                    "the catalog's URL for the command line, unless `--catalog` names one",
                ),
                ("`SPARK_REMOTE`", "a Spark Connect server to work with, such as `sc://host:15002`"),
                (
                    "`SPARK_MASTER`",
                    "the master of a Spark session that Strandline starts; default `local[*]`",
                ),
                ("`JAVA_HOME`", "where Java is, for a Spark session on this machine"),
                ("`NO_COLOR`", "set to anything: no colours in the terminal"),
                ("`XDG_STATE_HOME`", "where the SQL shell keeps its history; default `~/.local/state`"),
            ],
        )
        + "\n"
    )


def metrics() -> str:
    from strandline.metrics import Metrics

    found = Metrics()
    rows = []
    for metric in found.registry.collect():
        collector = found.registry._names_to_collectors.get(metric.name)
        labels = ", ".join(f"`{label}`" for label in getattr(collector, "_labelnames", ()))
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        rows.append((f"`{name}`", metric.type, labels, metric.documentation))
    return (
        "# Metrics\n\n"
        "`db.metrics()` and `strandline metrics` give the counters and histograms of one process in\n"
        "Prometheus' text format. A process starts with all of them at zero.\n\n"
        + _table(("metric", "type", "labels", "meaning"), rows)
        + "\n"
    )


def api() -> str:
    import strandline
    from strandline.api.operations import OperationInfo
    from strandline.api.result import Result
    from strandline.api.stream import Stream
    from strandline.api.table import Table
    from strandline.tables.check import CheckReport

    own = {"start", "run_operation", "current_transaction", "transact", "look", "guard", "to_dict", "of"}
    parts = [
        "# The Python API\n",
        "Everything public is in the package `strandline`; errors are in `strandline.errors`. "
        "What is not on this page may change.\n",
        f"## `strandline.connect{_signature(strandline.connect)}`\n\n{_doc(strandline.connect)}\n",
    ]
    for class_ in (strandline.Database, Result, Table, Stream, OperationInfo, CheckReport):
        parts.append(f"## `{class_.__name__}`\n\n{_doc(class_)}\n")
        for name, member in vars(class_).items():
            if name.startswith("_") or name in own:
                continue
            if isinstance(member, property):
                parts.append(f"### `{class_.__name__}.{name}`\n\n{_doc(member.fget)}\n")
            elif inspect.isfunction(member):
                parts.append(f"### `{class_.__name__}.{name}{_signature(member)}`\n\n{_doc(member)}\n")
    return "\n".join(parts)


def sql_forms() -> str:
    forms = []
    for name in ("tables", "changes", "query", "parser", "backups"):
        module = importlib.import_module(f"strandline.sql.{name}")
        for key, value in vars(module).items():
            if re.fullmatch(r"_?[A-Z_]*FORM", key) and isinstance(value, str) and value not in forms:
                forms.append(value)
    listed = "\n".join(f"```text\n{form}\n```\n" for form in forms)
    return (
        "# Forms of the statements\n\n"
        "As error messages show them: `[ ]` may be left out, `|` separates choices. Explanations and\n"
        "examples are in the [SQL reference](sql.md).\n\n" + listed
    )


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    shown = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
        if p.name != "self"
    ]
    return str(signature.replace(parameters=shown, return_annotation=inspect.Signature.empty))


def _doc(of: Any) -> str:
    text = inspect.getdoc(of) or ""
    return re.sub(r"``(.+?)``", r"`\1`", text)


def _first(text: str | None) -> str:
    return " ".join(re.sub(r"``(.+?)``", r"`\1`", text or "").split())


def _table(columns: tuple[str, ...], rows: Any) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli,
    "errors.md": errors,
    "settings.md": settings,
    "metrics.md": metrics,
    "api.md": api,
    "sql-forms.md": sql_forms,
}


def page(name: str) -> str:
    return MADE + PAGES[name]().rstrip() + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    for name in PAGES:
        (REFERENCE / name).write_text(page(name), "utf-8")
        print(f"wrote docs/reference/{name}")
