"""The alerts and the dashboard that are shipped ask for what there is, and for all of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import strandline
from strandline.api.metrics_text import GAUGES
from strandline.metrics import Metrics

OPS = Path(__file__).resolve().parent.parent / "ops"
RULES = OPS / "prometheus-rules.yml"
SAMPLE = re.compile(r"\bstrandline_\w+")
SELECTOR = re.compile(r"\b(strandline_\w+)\{([^}]*)\}")
GROUPED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
GROWTH = re.compile(r"\b(?:rate|irate|increase)\(\s*(strandline_\w+)")
SHOWN = re.compile(r"\$labels\.(\w+)|\{\{\s*(\w+)\s*\}\}")
OF_A_SAMPLE = {"_total": "counter", "_bucket": "histogram", "_sum": "histogram", "_count": "histogram"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The type of each metric of a warehouse, as what scrapes it reads it."""
    with strandline.connect(tmp_path_factory.mktemp("ops") / "w") as db:
        text = db.metrics()
    return {family.name: family.type for family in text_string_to_metric_families(text)}


def labels() -> dict[str, set[str]]:
    registry = Metrics().registry
    counted = {m.name: registry._names_to_collectors.get(m.name) for m in registry.collect()}
    found = {name: set(getattr(of, "_labelnames", ())) for name, of in counted.items()}
    return found | {gauge.name: set(gauge.labels) for gauge in GAUGES}


def alerts() -> Iterator[tuple[str, str, str]]:
    """For each rule its name, its expression, and what it says to people."""
    for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values())


def panels() -> Iterator[tuple[str, str, str]]:
    for panel in json.loads((OPS / "grafana-dashboard.json").read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


EVERYTHING = [*alerts(), *panels()]
NAMES = [name for name, _, _ in EVERYTHING]


def family_of(sample: str) -> tuple[str, str]:
    """The metric that a sample belongs to, and the type that it must have for that."""
    for ending, kind in OF_A_SAMPLE.items():
        if sample.endswith(ending):
            return sample.removesuffix(ending), kind
    return sample, "gauge"


def faults(exported: dict[str, str], expression: str, said: str) -> list[str]:
    """What is wrong with an expression, or with what is said with it."""
    known, wrong, there = labels(), [], {"le"}
    for sample in SAMPLE.findall(expression):
        name, kind = family_of(sample)
        if exported.get(name) != kind:
            wrong.append(f"{sample} is no {kind}, but {exported.get(name)}")
        there |= known.get(name, set())
    for sample, conditions in SELECTOR.findall(expression):
        named = set(re.findall(r"(\w+)\s*[=!]", conditions))
        wrong += [f"{sample} has no label {n}" for n in named - known.get(family_of(sample)[0], set())]
    grouped = {n.strip() for found in GROUPED.findall(expression) for n in found.split(",")}
    wrong += [f"nothing here has a label {name}" for name in grouped - there]
    wrong += [f"{s} does not only grow" for s in GROWTH.findall(expression) if family_of(s)[1] == "gauge"]
    shown = {first or second for first, second in SHOWN.findall(said)}
    left = set().union(*(n.split(",") for n in re.findall(r"\bby\s*\(([^)]*)\)", expression)), set())
    kept = {name.strip() for name in left} if left else there
    return wrong + [f"the result has no label {name}" for name in shown - kept]


@pytest.mark.parametrize(("name", "expression", "said"), EVERYTHING, ids=NAMES)
def test_what_is_asked_for_is_there(exported: dict[str, str], name: str, expression: str, said: str) -> None:
    assert SAMPLE.search(expression)
    assert faults(exported, expression, said) == []


@pytest.mark.parametrize(
    ("expression", "said", "fault"),
    [
        ("strandline_backup_bites", "", "strandline_backup_bites is no gauge, but None"),
        ("strandline_backup_bytes_total", "", "strandline_backup_bytes_total is no counter, but gauge"),
        ("strandline_claims", "", "strandline_claims is no gauge, but counter"),
        ('strandline_claims_total{state="a"}', "", "strandline_claims_total has no label state"),
        ("sum by (state) (strandline_backup_bytes)", "", "nothing here has a label state"),
        ("rate(strandline_backup_bytes[5m])", "", "strandline_backup_bytes does not only grow"),
        ("strandline_backup_bytes", "{{ $labels.kind }}", "the result has no label kind"),
        ("sum by (kind) (strandline_operations_listed)", "{{state}}", "the result has no label state"),
    ],
)
def test_what_is_not_there_would_be_found(
    exported: dict[str, str], expression: str, said: str, fault: str
) -> None:
    assert faults(exported, expression, said) == [fault]


def test_all_that_is_exported_is_on_the_dashboard(exported: dict[str, str]) -> None:
    asked = {family_of(sample)[0] for _, expression, _ in panels() for sample in SAMPLE.findall(expression)}
    assert asked == set(exported)


def test_names_of_alerts_and_places_of_panels_are_their_own() -> None:
    names = [name for name, _, _ in alerts()]
    assert len(names) == len(set(names))
    shown = json.loads((OPS / "grafana-dashboard.json").read_text("utf-8"))["panels"]
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in shown)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells)), "panels lie on each other"
    assert max(x for x, _ in cells) < 24


def test_the_page_names_every_event_that_is_logged() -> None:
    page = (OPS.parent / "docs" / "how-to" / "monitoring.md").read_text("utf-8")
    source = "".join(file.read_text("utf-8") for file in (OPS.parent / "src").rglob("*.py"))
    logged = set(re.findall(r"\bevent\(\s*\"([a-z ]+)\"", source))
    assert {"claim", "mismatch", "operation ended"} <= logged
    assert [name for name in logged if f"`{name}`" not in page] == []


@pytest.fixture
def promtool() -> Callable[..., subprocess.CompletedProcess[str]]:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([found, *args], capture_output=True, text=True, check=False, cwd=OPS)

    return run


def test_prometheus_takes_the_rules(promtool: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = promtool("check", "rules", RULES.name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(list(alerts()))} rules found" in done.stdout


def test_the_alerts_come_when_they_should(promtool: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = promtool("test", "rules", "prometheus-rules-test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_what_is_exported(tmp_path: Path, promtool: Callable[..., object]) -> None:
    with strandline.connect(tmp_path / "w") as db:
        db.sql("CREATE TABLE t (k Int64 NOT NULL, PRIMARY KEY (k))")
        text = db.metrics()
    found = shutil.which("promtool")
    assert found is not None
    done = subprocess.run(
        [found, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert "error while linting" not in done.stderr, done.stderr
