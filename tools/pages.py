"""MkDocs hook: fill in parts of reference pages that mkdocstrings cannot generate.

A page marks the place with a line such as ``<!-- code: errors -->``.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from strandline import errors
from strandline.api.metrics_text import GAUGES
from strandline.metrics import Metrics


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marks in a page. Called by MkDocs for each page."""
    return re.sub(r"<!-- code: (\w+) -->", lambda place: PLACES[place[1]](), markdown)


def on_post_build(config: Any) -> None:
    """Write the search index also as a script, because pages opened from a disk cannot fetch files."""
    folder = Path(config["site_dir"], "search")
    index = (folder / "search_index.json").read_text("utf-8")
    (folder / "search_index.js").write_text(f"var searchIndex = {index};\n", "utf-8")


def commands() -> str:
    """Return Typer's description of the command line without repetitions.

    Options of all commands are listed only at the top, and there is no list of the commands before them.
    """
    typer = [sys.executable, "-m", "typer", "tools.commands", "utils", "docs", "--name", "strandline"]
    described = subprocess.run(
        typer, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=True
    ).stdout
    top, *others = re.split(r"(?=^## )", described.partition("\n")[2], flags=re.MULTILINE)
    shared = {line for line in top.splitlines() if line.startswith("* `-")}
    own = [line for other in others for line in other.splitlines() if line not in shared]
    without_empty_lists = re.sub(r"\*\*Options\*\*:\n\n(?!\* )", "", "\n".join(own))
    page = top.partition("**Commands**")[0] + without_empty_lists
    return re.sub(r"^Example: (.+)", r"**Example**:\n\n```console\n$ \1\n```", page, flags=re.MULTILINE)


def faults() -> str:
    found = sorted((getattr(errors, name) for name in errors.__all__), key=lambda kind: kind.exit_code)
    rows = [(f"`{e.code}`", e.exit_code, f"`{e.__name__}`", e.__doc__, e.default_hint) for e in found]
    return _table(("code", "exit code", "class", "cause", "cure"), rows)


def metrics() -> str:
    return _table(("metric", "type", "labels", "meaning"), _metrics())


def _metrics() -> Iterator[tuple[str, ...]]:
    registry = Metrics().registry
    for metric in registry.collect():
        collector = registry._names_to_collectors.get(metric.name)
        labels = ", ".join(f"`{label}`" for label in getattr(collector, "_labelnames", ()))
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        yield f"`{name}`", metric.type, labels, metric.documentation
    for gauge in GAUGES:
        labels = ", ".join(f"`{label}`" for label in gauge.labels)
        yield f"`{gauge.name}`", "gauge", labels, gauge.meaning


def forms() -> str:
    """Return the syntax of every statement that the parser knows, as its error messages show it."""
    found: dict[str, None] = {}
    for name in ("tables", "changes", "merge", "query", "parser", "backups", "retention", "warehouse"):
        module = importlib.import_module(f"strandline.sql.{name}")
        found.update({v: None for k, v in vars(module).items() if re.fullmatch(r"_?[A-Z_]*FORM", k)})
    return "\n\n".join(f"```text\n{form}\n```" for form in found)


def _table(columns: tuple[str, ...], rows: Iterable[Iterable[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


PLACES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "errors": faults,
    "metrics": metrics,
    "forms": forms,
}
