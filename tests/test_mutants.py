"""The mutants themselves: each is another function, and those on the list are still there."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest

from tools.mutants import LIST, SOURCE, TARGETS, by_turns, first_noticed, known, trials_of_tests
from tools.mutations import mutants, mutated
from tools.reached import Reached
from tools.spending import Spending
from tools.trials import SURVIVED, Trial, attempt, failing, side_by_side

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
found = watched(Path.cwd(), [Path("m.py").absolute()], ["test_m.py"], workers=0)
print(found.tests, found.lines)
"""


@pytest.mark.slow
def test_a_line_is_noted_for_every_test_that_comes_to_it(tmp_path: Path) -> None:
    pytest.importorskip("coverage", reason="make mutants installs it")
    (tmp_path / "m.py").write_text("def f():\n    return 1\n", "utf-8")
    (tmp_path / "test_m.py").write_text(
        "from m import f\ndef test_a():\n    f()\ndef test_b():\n    f()\n", "utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-c", WATCH],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    last = done.stdout.splitlines()[-1]
    assert last == "['test_m.py::test_a', 'test_m.py::test_b'] {'m.py': {'1': [], '2': [0, 1]}}"


@pytest.mark.slow
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


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with a module that is imported, a test of it and one that finds nothing."""
    (tmp_path / "looked_at.py").write_text(EXAMPLE, "utf-8")
    (tmp_path / "test_small.py").write_text(
        "from looked_at import plain\n"
        "def test_good(): assert plain(1) == {'least': 1, 'most': 3}\n"
        "def test_hollow(): assert plain(1) or True\n"
        "def test_wrong(): assert plain(1) == 0\n",
        "utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("looked_at")
    yield tmp_path
    del sys.modules["looked_at"]


@pytest.mark.slow
def test_a_test_is_seen_failing_with_the_first_mutant_that_it_notices(small: Path) -> None:
    changes = ("a < b -> a <= b", "b + 1 -> b - 1", "return dict(least=a, most=b + 1) -> return None")
    found = {mutant.name.split(": ", 1)[1]: mutant for mutant in mutants(small, small / "looked_at.py")}
    good, hollow, wrong = (f"{small}/test_small.py::test_{name}" for name in ("good", "hollow", "wrong"))
    of_tests = [(t, [Trial(small, found[each], (t,), 1.0) for each in changes]) for t in (good, hollow)]
    assert attempt(of_tests[0][1][0]) == (SURVIVED, "")
    assert [mutant for _, mutant in side_by_side(first_noticed, of_tests, 2)] == [found[changes[1]], None]
    assert [test.rpartition("::")[2] for test in failing([good, hollow, wrong])] == ["test_wrong"]


def test_a_test_meets_first_what_the_fewest_others_come_to(tmp_path: Path) -> None:
    (file := tmp_path / "m.py").write_text(EXAMPLE, "utf-8")
    slow, fast, two, other = (
        f"tests/{name}" for name in ("a::one[slow]", "a::one[fast]", "a::two", "b::one")
    )
    lines = {"4": [0, 1, 2, 3], "5": [0, 1, 2], "6": [2]}
    reached = Reached([slow, fast, two, other], [2.0, 1.0, 1.0, 1.0], {"m.py": lines})
    made = trials_of_tests(reached, mutants(tmp_path, file), "tests/a", 7)
    assert [test for test, _ in made] == [fast, two], "one of all its parameters is enough"
    assert [[trial.mutant.lines[0] for trial in trials] for _, trials in made] == [
        [5, 5, 5, 5, 5, 4, 4],
        [6, 5, 5, 5, 5, 5, 4],
    ]


def test_a_mutant_meets_one_test_of_each_file_first_and_other_parameters_last() -> None:
    tests = ["a::one[1]", "a::one[2]", "a::two", "b::one", "a::three", "b::two[1]", "b::two[2]"]
    reached = Reached(tests, [float(number) for number in range(len(tests))])
    order = [tests[number] for number in by_turns(reached, range(len(tests)))]
    assert order == ["a::one[1]", "b::one", "a::two", "b::two[1]", "a::three", "a::one[2]", "b::two[2]"]


def test_the_tests_that_the_list_names_are_there() -> None:
    named = re.findall(r"\| `(tests/\S+\.py)`, `(test_\w+)` \|", LIST.read_text("utf-8"))
    assert len(named) == 5
    for file, test in named:
        assert f"def {test}(" in (LIST.parent.parent / file).read_text("utf-8"), file
