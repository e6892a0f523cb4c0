"""The mutants themselves: each is another function, and those on the list are still there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

from tools.mutants import LIST, SOURCE, TARGETS, known
from tools.mutations import mutants, mutated
from tools.spending import Spending

EXAMPLE = """
def plain(a, b=2):
    \"\"\"Says something.\"\"\"
    if a < b and not a == 3:
        return dict(least=a, most=b + 1)
    raise ValueError("no")

class Some:
    @property
    def many(self):
        def inner(x):
            return x - 1
        return [inner(5)]
"""
EXPECTED = [
    "plain: a < b and (not a == 3) -> a < b or not a == 3",
    "plain: a < b -> a <= b",
    "plain: not a == 3 -> a == 3",
    "plain: a == 3 -> a != 3",
    "plain: 3 -> 4",
    "plain: return dict(least=a, most=b + 1) -> return None",
    "plain: dict(least=a, most=b + 1) -> dict(most=b + 1)",
    "plain: dict(least=a, most=b + 1) -> dict(least=a)",
    "plain: b + 1 -> b - 1",
    "plain: 1 -> 2",
    "plain: raise ValueError('no') -> pass",
    "Some.many: return x - 1 -> return None",
    "Some.many: x - 1 -> x + 1",
    "Some.many: 1 -> 2",
    "Some.many: return [inner(5)] -> return None",
    "Some.many: 5 -> 6",
]


def test_what_may_be_changed(tmp_path: Path) -> None:
    (file := tmp_path / "m.py").write_text(EXAMPLE, "utf-8")
    assert [mutant.name for mutant in mutants(tmp_path, file)] == [f"m.py {each}" for each in EXPECTED]


def test_a_living_function_becomes_the_mutant(tmp_path: Path) -> None:
    (file := tmp_path / "m.py").write_text(EXAMPLE, "utf-8")
    found = {mutant.name.split(": ", 1)[1]: mutant for mutant in mutants(tmp_path, file)}
    there: dict[str, FunctionType] = {}
    exec(compile(EXAMPLE, str(file), "exec"), there)
    plain = there["plain"]
    before, after = mutated(file, found["b + 1 -> b - 1"])
    assert (before.co_name, before.co_firstlineno) == (plain.__code__.co_name, plain.__code__.co_firstlineno)
    assert plain(1) == {"least": 1, "most": 3}
    plain.__code__ = after
    assert plain(1) == {"least": 1, "most": 1}
    some = vars(there["Some"])["many"].fget
    some.__code__ = mutated(file, found["x - 1 -> x + 1"])[1]
    assert there["Some"]().many == [6]


WATCH = """
from pathlib import Path
from tools.reached import watched
found = watched(Path.cwd(), [Path("m.py").absolute()], ["test_m.py"])
print(found.tests, found.lines)
"""


def test_a_line_is_noted_for_every_test_that_comes_to_it(tmp_path: Path) -> None:
    pytest.importorskip("coverage", reason="make mutants installs it")
    (tmp_path / "m.py").write_text("def f():\n    return 1\n", "utf-8")
    (tmp_path / "test_m.py").write_text(
        "from m import f\ndef test_a():\n    f()\ndef test_b():\n    f()\n", "utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-c", WATCH],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    last = done.stdout.splitlines()[-1]
    assert last == "['test_m.py::test_a', 'test_m.py::test_b'] {'m.py': {'1': [], '2': [0, 1]}}"


def test_what_the_list_has_a_reason_for_is_there() -> None:
    there = {m.name for pattern in TARGETS for file in SOURCE.glob(pattern) for m in mutants(SOURCE, file)}
    assert known() <= there, "its function has changed: try it again"


@pytest.mark.parametrize(("program", "grows"), [("while True: pass", "worked"), ("input()", "idle")])
def test_work_and_idleness_of_a_process_are_told_apart(program: str, grows: str) -> None:
    """It would never end if the one were taken for the other."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", program], start_new_session=True, stdin=subprocess.PIPE
    )
    try:
        spent = Spending(process.pid)
        while getattr(spent, grows) < 0.1:
            spent.look()
    finally:
        process.kill()
        process.communicate()


def test_the_tests_that_the_list_names_are_there() -> None:
    named = re.findall(r"\| `(tests/\S+\.py)`, `(test_\w+)` \|", LIST.read_text("utf-8"))
    assert len(named) == 5
    for file, test in named:
        assert f"def {test}(" in (LIST.parent.parent / file).read_text("utf-8"), file
