"""What pyproject.toml asks for, and the two lists of exact versions, say the same."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import strandline

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]


def pinned(file: str) -> dict[str, str]:
    """The version of each package that a list has for this Python."""
    lines = (ROOT / file).read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    here = [pin for pin in pins if pin.marker is None or pin.marker.evaluate()]
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in here}


def wanted(*lists: list[str]) -> list[Requirement]:
    found = [Requirement(line) for some in lists for line in some]
    here = [each for each in found if each.marker is None or each.marker.evaluate()]
    return [requirement for requirement in here if requirement.name != PROJECT["name"]]


def test_every_package_that_is_asked_for_is_pinned_as_it_is_asked_for() -> None:
    pins = pinned("constraints.txt")
    for requirement in wanted(PROJECT["dependencies"], *EXTRAS.values()):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("extra", [None, *EXTRAS])
def test_every_package_that_comes_with_another_is_pinned(extra: str | None) -> None:
    """Else two installations of the same commit may differ."""
    if extra == "connect":
        pytest.importorskip("grpc_status", reason="make lowest runs without it")
    if extra == "browser":
        pytest.importorskip("playwright", reason="make console installs it")
    left = wanted(PROJECT["dependencies"] if extra is None else EXTRAS[extra])
    pins, seen = pinned("constraints.txt"), set[str]()
    if distribution("sqlalchemy").version != pins["sqlalchemy"]:
        pins |= pinned(
            "constraints-lowest.txt"
        )  # These are installed, and may need others than the newer ones.
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        key = f"{name}[{','.join(sorted(requirement.extras))}]"
        if key in seen:
            continue
        seen.add(key)
        assert name in pins, f"{name} is installed in whatever version is the newest"
        for needed in map(Requirement, distribution(name).requires or ()):
            chosen = ({"extra": extra} for extra in requirement.extras or {""})
            if needed.marker is None or any(needed.marker.evaluate(environment) for environment in chosen):
                left.append(needed)


def test_extras_that_are_made_of_others_name_such_as_there_are() -> None:
    made_of = {
        extra: set[str]().union(
            *(Requirement(line).extras for line in lines if line.startswith("strandline["))
        )
        for extra, lines in EXTRAS.items()
    }
    assert set[str]().union(*made_of.values()) <= set(EXTRAS)
    assert made_of["server"] == {"postgres", "s3", "connect", "encryption"}


def test_the_lowest_versions_are_the_lower_bounds() -> None:
    """But for what is not asked for by name: that only has to fit."""
    low = pinned("constraints-lowest.txt")
    for requirement in wanted(
        PROJECT["dependencies"], EXTRAS["postgres"], EXTRAS["s3"], EXTRAS["encryption"]
    ):
        (bound,) = re.findall(r">=([\w.]+)", str(requirement.specifier))
        assert low[canonicalize_name(requirement.name)] == bound, requirement


def test_the_version_stands_in_one_place_and_is_found_without_an_import() -> None:
    """The build reads a literal from the source. Anything else it would have to import, and what that imports
    is not there yet."""
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "strandline.version.VERSION"}
    source = ast.parse((ROOT / "src" / "strandline" / "version.py").read_text("utf-8"))
    literals = {
        ast.unparse(node.targets[0]): node.value for node in source.body if isinstance(node, ast.Assign)
    }
    assert ast.literal_eval(literals["VERSION"]) == strandline.__version__
