"""The documentation tells the truth: its examples print what it says, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import strandline
from strandline.catalog.sqltables import metadata
from tests.s3 import S3
from tools import rundocs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_EXAMPLES = [page for page in PAGES if rundocs.blocks_of(page.read_text("utf-8"))]
NEED = {"how-to/postgresql.md": "postgres_url"}
URL = "postgresql://backup@db.example.org/strandline"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name_of)
def test_examples_print_what_the_page_says(
    page: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    replace = {}
    if name_of(page) in NEED:
        replace[URL] = request.getfixturevalue(NEED[name_of(page)])
    if name_of(page) == "how-to/object-stores.md":
        s3: S3 = request.getfixturevalue("s3")
        s3.client.create_bucket(Bucket="shop-data")
        replace |= {
            "https://s3.example.org": s3.endpoint,
            "=ada": f"={s3.key}",
            "=lovelace": f"='{s3.secret}'",
        }
    problems = rundocs.check(page, replace=replace)
    assert not problems, "\n\n".join(problems)


def test_every_page_with_something_to_do_has_examples() -> None:
    assert {name_of(p) for p in PAGES if "how-to" in p.parts} <= {name_of(p) for p in WITH_EXAMPLES}
    assert {"README.md", "index.md", "tutorial.md", "reference/sql.md"} <= {name_of(p) for p in WITH_EXAMPLES}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    """Those of pages that are not in the site, which proves it of its own."""
    targets = re.findall(r"\]\(([^)#\s]+)", (ROOT / name).read_text("utf-8"))
    assert [target for target in targets if "://" not in target and not (ROOT / target).exists()] == []


def test_the_navigation_leads_to_every_page() -> None:
    pages = {name_of(page) for page in PAGES} - {"README.md"}
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[1].split("\n\n")[0]
    assert pages == set(re.findall(r": ([\w/-]+\.md)$", navigation, re.MULTILINE))


def test_the_list_of_make_targets_is_what_make_prints() -> None:
    listed = re.findall(r"^([a-z0-9]+):.*## (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    told = re.findall(
        r"^ +make ([a-z0-9]+) +([A-Z].+)$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE
    )
    assert told == listed


def test_the_changelog_begins_with_this_version() -> None:
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert first is not None
    assert first[1] == strandline.__version__


def test_the_page_about_the_format_names_every_table_of_the_catalog() -> None:
    text = (ROOT / "docs" / "format.md").read_text("utf-8")
    assert [name for name in metadata.tables if f"`{name}`" not in text] == []


def test_the_map_names_every_folder() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    folders = [p.name for p in (ROOT / "src" / "strandline").iterdir() if (p / "__init__.py").exists()]
    assert [name for name in folders if not re.search(rf"\b{name}\b", text)] == []


def test_what_installs_is_the_same_everywhere_and_names_extras_that_there_are() -> None:
    """`make fresh` runs the lines."""
    readme, first = ((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/index.md"))
    blocks = [re.search(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) for text in (readme, first)]
    lines = [block[1].splitlines() for block in blocks if block]
    assert lines[0] == lines[1]
    assert len(lines[0]) == 3
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    extras = set(
        re.findall(
            r"^(\w+) = \[", project.split("[project.optional-dependencies]")[1].split("\n[")[0], re.MULTILINE
        )
    )
    for text in (readme, first):
        told = re.search(r"Extras, as in .*?`: (.*?)\.\n", text, re.DOTALL)
        assert told is not None
        named = set(re.findall(r"`(\w+)` \(", told[1]))
        assert named == extras - {"docs", "dev", "browser"}
    image = (ROOT / "Dockerfile").read_text("utf-8")
    assert [
        name
        for name in re.findall(r"^COPY (?!--)(.+) \S+$", image, re.MULTILINE)
        for name in name.split()
        if not (ROOT / name).exists()
    ] == []
    assert set(re.findall(r"'\.\[(.+)\]'", image)[0].split(",")) <= extras
