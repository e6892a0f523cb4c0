"""The site of the documentation is built without a broken link, and its reference names all that there is."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import typer

import strandline
from strandline import errors
from strandline.api.metrics_text import GAUGES
from strandline.api.progress import OperationInfo
from strandline.api.result import Result
from strandline.api.stream import Batch, Stream
from strandline.api.table import Table
from strandline.cli.app import COMMANDS, app_with
from strandline.metrics import Metrics
from strandline.tables.check import CheckReport, Problem
from strandline.tables.housekeeping import Report
from tests.processes import environment

# In one worker, so that it is built once.
pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent
CLASSES = (
    strandline.Database,
    strandline.Entry,
    strandline.Settings,
    Result,
    Table,
    Stream,
    Batch,
    OperationInfo,
    CheckReport,
    Problem,
    Report,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ``make docs`` builds it: whatever MkDocs warns of is an error."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def page(site: Path, name: str) -> str:
    return (site / f"{name}.html").read_text("utf-8")


def text_of(site: Path, name: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page(site, name))).split())


def reference(site: Path) -> str:
    """The pages that mkdocstrings makes."""
    return page(site, "reference/api") + page(site, "reference/settings")


def public(of: type) -> Iterator[str]:
    """The names of a class that users may use."""
    for name, member in vars(of).items():
        if not name.startswith("_"):
            if inspect.isfunction(member) or isinstance(member, property):
                yield name
    if hasattr(of, "__dataclass_fields__"):
        yield from (field.name for field in fields(of) if not field.name.startswith("_"))
    yield from getattr(of, "_fields", ())


def test_the_search_works_from_a_disk(site: Path) -> None:
    """Where a browser starts no worker: what stands in for it is there before it is asked for."""
    for name in ("index", "how-to/retention"):
        scripts = re.findall(r'<script src="[./]*([^"]+)"', page(site, name))
        assert scripts.index("site/search-from-disk.js") < scripts.index("search/main.js")
    wanted = re.findall(r'"(\w+\.js)"', (site / "site/search-from-disk.js").read_text("utf-8"))
    assert len(wanted) == 3
    for name in wanted:
        assert (site / "search" / name).exists(), name
    index = (site / "search/search_index.js").read_text("utf-8")
    assert index == f"var searchIndex = {(site / 'search/search_index.json').read_text('utf-8')};\n"
    used = (site / "search/worker.js").read_text("utf-8")
    assert {"function search (", "function onScriptsLoaded ("} <= set(re.findall(r"function \w+ ?\(", used))


def test_sentences_in_tables_are_wrapped(site: Path) -> None:
    assert 'href="site/look.css"' in page(site, "index")
    assert "white-space: normal" in (site / "site/look.css").read_text("utf-8")


def test_every_page_is_there(site: Path) -> None:
    made = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert made >= {path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md")}


@pytest.mark.parametrize("of", CLASSES, ids=lambda of: of.__name__)
def test_every_public_name_has_an_entry(site: Path, of: type) -> None:
    entries = re.findall(r'id="strandline\.(?:\w+\.)*(\w+\.\w+)"', reference(site))
    assert entries
    assert {f"{of.__name__}.{name}" for name in public(of)} - set(entries) == set()


def test_every_name_of_the_package_has_an_entry(site: Path) -> None:
    named = [name for name in strandline.__all__ if name not in ("__version__", "errors")]
    assert [name for name in named if f'id="strandline.{name}"' not in reference(site)] == []


@pytest.mark.parametrize("of", CLASSES, ids=lambda of: of.__name__)
def test_what_an_entry_says_is_more_than_its_name(of: type) -> None:
    assert inspect.getdoc(of)
    members = [vars(of).get(name) for name in public(of)]
    called = [m for m in members if inspect.isfunction(m) or isinstance(m, property)]
    assert [m for m in called if not inspect.getdoc(m)] == []


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")


def test_every_command_and_option_has_an_entry(site: Path) -> None:
    text = text_of(site, "reference/cli")
    found = list(commands(typer.main.get_command(app_with(COMMANDS)), "strandline"))
    assert len(found) > 15
    options = [name for _, command in found for p in command.params for name in p.opts if name[0] == "-"]
    assert [name for name in (*dict(found), *options) if name not in text] == []


def test_every_error_has_an_entry(site: Path) -> None:
    text = text_of(site, "reference/errors")
    for kind in [getattr(errors, name) for name in errors.__all__]:
        assert f"{kind.code} {kind.exit_code} {kind.__name__} {kind.__doc__} {kind.default_hint}" in text


def test_every_metric_has_an_entry(site: Path) -> None:
    text = text_of(site, "reference/metrics")
    names = [m.name for m in Metrics().registry.collect()] + [gauge.name for gauge in GAUGES]
    assert [name for name in names if name not in text] == []


def test_the_forms_of_statements_are_there(site: Path) -> None:
    assert "BACKUP collection [INCREMENTAL [OR FULL]] [WITH (" in text_of(site, "reference/sql-forms")


def test_no_page_needs_anything_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|link)\b[^>]*(?:src|href)="([^"]+)"', path.read_text("utf-8"))
        assert loaded
        assert [address for address in loaded if "//" in address] == [], path
    for path in site.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//[^)]*", path.read_text("utf-8")) == [], path
