"""Test every supported Python and every release line of PySpark, each in a new environment.

    python -m tools.matrix                     # every Python found here, and every line of PySpark
    python -m tools.matrix --only 3.13,4.0     # only these versions of Python or PySpark
    python -m tools.matrix --list              # what would be tested, and what is missing here

Each Python is tested with the PySpark of ``constraints.txt``, and each line of PySpark with the Python that
runs this script. So a defect of one of them shows in its own row, and the number of environments is a sum and
not a product. Python versions are searched on the path and in pyenv; a missing one is reported, but is not a
failure.

A row tests what can differ. Another Python runs all of the code, so it runs the tests of ``make quick`` and
the Spark tests of ``make lowest``; another PySpark only runs the latter. All sets of tests of a row run, even
if one fails; the row shows the outcome of each.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "matrix"
_CLASSIFIER = re.compile(r'"Programming Language :: Python :: (3\.\d+)"')
_PYSPARK = re.compile(r"^pyspark==(\S+)$", re.MULTILINE)
_PY4J = re.compile(r"^py4j==.*$", re.MULTILINE)
_ON_SPARK = re.compile(r"^ON_SPARK := (.*)$", re.MULTILINE)
_OUTCOME = re.compile(r"^(\d+ .*) in \d", re.MULTILINE)


@dataclass(frozen=True)
class Pair:
    """A Python and a PySpark. ``command``: the path of the Python; None if it is missing."""

    python: str
    pyspark: str
    command: str | None

    @property
    def folder(self) -> Path:
        return BUILD / f"python{self.python}-pyspark{self.pyspark}"

    def __str__(self) -> str:
        return f"Python {self.python}, PySpark {self.pyspark}"


def pythons() -> list[str]:
    """Return the Python versions that the package declares as supported."""
    return _CLASSIFIER.findall((ROOT / "pyproject.toml").read_text("utf-8"))


def command_of(python: str) -> str | None:
    """Return the path of a Python: this one, one on the path, or the newest in pyenv."""
    if python == "{}.{}".format(*sys.version_info):
        return sys.executable
    if (found := shutil.which(f"python{python}")) and _works(found, python):
        return found
    made = sorted(Path.home().glob(f".pyenv/versions/{python}.*/bin/python"), key=_patch)
    return str(made[-1]) if made else None


def _patch(command: Path) -> int:
    return int(command.parent.parent.name.rsplit(".", 1)[1])


def _works(command: str, python: str) -> bool:
    """Check the version: pyenv also has commands for versions that are disabled."""
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and f" {python}." in done.stdout


def lines_of_pyspark() -> list[str]:
    """Return the newest release of each line of PySpark 4 on the package index."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "pyspark", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the package index does not say which PySpark there is: {done.stderr.strip()}")
    newest: dict[str, str] = {}
    for version in re.findall(r"\b(4\.\d+\.\d+)(?=,|$)", done.stdout, re.MULTILINE):
        line = version.rsplit(".", 1)[0]
        if line not in newest or _patch_of(version) > _patch_of(newest[line]):
            newest[line] = version
    return sorted(newest.values(), key=lambda version: [int(part) for part in version.split(".")])


def _patch_of(version: str) -> int:
    return int(version.rsplit(".", 1)[1])


def pinned_pyspark() -> str:
    (pinned,) = _PYSPARK.findall((ROOT / "constraints.txt").read_text("utf-8"))
    return str(pinned)


def pairs() -> Iterator[Pair]:
    pinned = pinned_pyspark()
    for python in pythons():
        yield Pair(python, pinned, command_of(python))
    here = "{}.{}".format(*sys.version_info)
    for pyspark in lines_of_pyspark():
        if pyspark != pinned:
            yield Pair(here, pyspark, sys.executable)


def attempt(pair: Pair, workers: int) -> tuple[bool, list[str]]:
    """Install and test one pair; return whether all passed, and the outcome of each step."""
    assert pair.command is not None
    pair.folder.mkdir(parents=True, exist_ok=True)
    constraints = pair.folder / "constraints.txt"
    # PySpark pins its own version of Py4J.
    pins = _PY4J.sub("", (ROOT / "constraints.txt").read_text("utf-8"))
    constraints.write_text(_PYSPARK.sub(f"pyspark=={pair.pyspark}", pins), "utf-8")
    python = str(pair.folder / "bin" / "python")
    wanted = f"{ROOT}[dev,postgres,connect]"
    for name, command in {
        "environment": [pair.command, "-m", "venv", str(pair.folder)],
        "installation": [python, "-m", "pip", "install", "--quiet", "-e", wanted, "-c", str(constraints)],
    }.items():
        passed, told = _run(pair, name, command)
        if not passed:
            return False, [told]
    ended = [
        _run(pair, name, [python, "-m", "pytest", "-q", *arguments])
        for name, arguments in tests(pair, workers).items()
    ]
    return all(passed for passed, _ in ended), [told for _, told in ended]


def tests(pair: Pair, workers: int) -> dict[str, list[str]]:
    """Return the pytest arguments for each set of tests of a pair."""
    (on_spark,) = _ON_SPARK.findall((ROOT / "Makefile").read_text("utf-8"))
    found = {"tests on Spark": on_spark.split()}
    if pair.pyspark == pinned_pyspark():
        several = ["-n", str(workers), "--dist", "loadgroup"]
        found = {"tests without Spark": [*several, "-m", "not spark and not slow"], **found}
    return found


def _run(pair: Pair, name: str, command: list[str]) -> tuple[bool, str]:
    path = pair.folder / f"{name}.log"
    with path.open("w") as log:
        done = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False)
    outcome = (_OUTCOME.findall(path.read_text("utf-8", errors="replace")) or ["failed"])[-1]
    return done.returncode == 0, f"{name}: {outcome}" + (
        f", see {path.relative_to(ROOT)}" if done.returncode else ""
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", default="", help="versions of Python or PySpark, comma-separated")
    parser.add_argument("--workers", type=int, default=4, help="processes for the tests without Spark")
    parser.add_argument("--list", action="store_true", help="only list what would be tested")
    given = parser.parse_args(arguments)
    only = [name for name in given.only.split(",") if name]
    failed = 0
    for pair in pairs():
        if only and not any(
            f"{v}.".startswith(f"{name}.") for name in only for v in (pair.python, pair.pyspark)
        ):
            continue
        if pair.command is None:
            print(f"{pair}: skipped, python{pair.python} is not installed", flush=True)
        elif given.list:
            print(f"{pair}: {pair.command}", flush=True)
        else:
            began = time.monotonic()
            passed, ended = attempt(pair, given.workers)
            failed += not passed
            print(
                f"{pair}: {'passed' if passed else 'FAILED'} ({time.monotonic() - began:.0f} s)",
                *ended,
                sep="\n    ",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
