"""The wheel and the source distribution: built, installed into an empty environment, used without Spark."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from strandline.version import VERSION
from tests.processes import environment

ROOT = Path(__file__).parent.parent
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")
SDIST = """
import sys
from setuptools import build_meta
print(build_meta.build_sdist(sys.argv[1]))
"""


def command(*arguments: str, cwd: Path, **variables: str) -> str:
    env = {name: value for name, value in environment().items() if name != "PYTHONPATH"} | variables
    env["JAVA_HOME"] = str(cwd / "no-java")
    done = subprocess.run(arguments, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if "No matching distribution found for setuptools" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def installed(wheel: Path, folder: Path) -> str:
    """Install a wheel into an empty environment with the dependencies of this one; return its command."""
    command(sys.executable, "-m", "venv", "env", cwd=folder)
    python = str(folder / "env" / "bin" / "python")
    command(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel), cwd=folder)
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    (here,) = {path for path in sys.path if path.endswith("site-packages")}
    (site / "dependencies.pth").write_text(f"{here}\n")
    where = command(python, "-c", "import strandline; print(strandline.__file__)", cwd=folder)
    assert where.startswith(str(site))
    return str(folder / "env" / "bin" / "strandline")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a release is built from, because setuptools writes beside it."""
    folder = tmp_path_factory.mktemp("release") / "sources"
    folder.mkdir()
    tracked = command("git", "ls-files", "-z", *SOURCES, cwd=ROOT).split("\0")
    for name in filter(None, tracked):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_wheel_works_in_an_empty_environment(sources: Path, tmp_path: Path) -> None:
    """It needs an index only for what builds it. Its dependencies are those of this environment."""
    command(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "-q",
        "-w",
        str(tmp_path),
        str(sources),
        cwd=tmp_path,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"strandline-{VERSION}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert "strandline/py.typed" in names
    assert "strandline/catalog/migrations/versions/v0001_tables.py" in names
    assert "pyspark_strandline/__init__.py" in names
    assert not [name for name in names if name.startswith("tests/") or name.endswith(".pyc")]

    strandline = installed(wheel, tmp_path)
    assert command(strandline, "--version", cwd=tmp_path) == f"strandline {VERSION}\n"
    command(strandline, "init", "w", cwd=tmp_path)
    command(
        *(strandline, "sql", "-w", "w"),
        "CREATE TABLE t (k Int64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v)); "
        "UPSERT INTO t (k, v) VALUES (1, 'a'), (2, 'b'); "
        "CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster'); BACKUP c; DROP TABLE t; RESTORE c",
        cwd=tmp_path,
    )
    assert '"b"' in command(
        strandline, "sql", "-w", "w", "--json", "SELECT v FROM t VIEW by_v WHERE v = 'b'", cwd=tmp_path
    )
    assert "CREATE TABLE" in command(strandline, "history", "-w", "w", "/t", cwd=tmp_path)
    assert "strandline" in command(strandline, "--show-completion", "bash", cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_image_has_what_its_commands_need(sources: Path, tmp_path: Path) -> None:
    """The steps of the Dockerfile, without an engine: it builds what it copies; its commands run on a volume.

    ``tests/cli/test_demo.py`` runs the demo, which needs Java.
    """
    image = (ROOT / "Dockerfile").read_text("utf-8")
    copied = {
        name for line in re.findall(r"^COPY (?!--)(.+) \S+$", image, re.MULTILINE) for name in line.split()
    }
    assert copied == {*SOURCES, "constraints.txt"}
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert {f"!{name}" for name in copied} <= set(ignored)
    last = image[image.rindex("FROM ") :]
    assert re.search(r"^USER (?!root)", last, re.MULTILINE)
    assert json.loads(re.findall(r"^ENTRYPOINT (.+)$", last, re.MULTILINE)[0]) == ["strandline"]
    volume = tmp_path / re.findall(r"STRANDLINE_WAREHOUSE=/(\S+)", last)[0]
    assert f"VOLUME /{volume.name}" in last
    assert re.search(r"openjdk-(17|21)-jre", last)
    volume.mkdir()
    wheel = (sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path), str(sources))
    command(*wheel, cwd=tmp_path)
    strandline = installed(next(tmp_path.glob("*.whl")), tmp_path)
    told = re.findall(r"`docker run --rm (?:-v shop:/\S+ )?strandline (.+?)`", image)
    assert [words.split()[0] for words in told] == ["demo", "init", "sql"]
    for words in (*told, *json.loads(re.findall(r"^CMD (.+)$", last, re.MULTILINE)[0])):
        given = [*shlex.split(words), *(("--help",) if words == "demo" else ())]
        command(strandline, *given, cwd=tmp_path, STRANDLINE_WAREHOUSE=str(volume))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_source_distribution_has_what_a_wheel_is_built_from(sources: Path, tmp_path: Path) -> None:
    command(sys.executable, "-m", "venv", "env", cwd=tmp_path)
    python = str(tmp_path / "env" / "bin" / "python")
    command(python, "-m", "pip", "install", "-q", "setuptools>=77", cwd=tmp_path)
    command(python, "-c", SDIST, str(tmp_path), cwd=sources)
    with tarfile.open(tmp_path / f"strandline-{VERSION}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/strandline/py.typed"} <= names
    assert "src/strandline/catalog/migrations/env.py" in names
    assert not [name for name in names if name.endswith(".pyc")]
