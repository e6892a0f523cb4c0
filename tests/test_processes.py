"""Processes that tests start are what they are told to be, wherever they come from."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.processes import environment, finish, run_python, start_python

SAYS = """
import os, sys
from pathlib import Path
told = [sys.argv[1:], sys.stdin.read(), str(Path.cwd()), os.environ["TOLD"], "PATH" in os.environ, __name__, os.getppid()]
print(told, Path(sys.modules["strandline"].__file__).parent if "strandline" in sys.modules else None)
"""
afresh = pytest.mark.parametrize("afresh", [False, True])


@afresh
def test_a_process_has_what_it_was_given_and_nothing_else(tmp_path: Path, afresh: bool) -> None:
    env = {name: value for name, value in environment().items() if name != "PATH"} | {"TOLD": "a word"}
    process = start_python("-c", SAYS, "one", "two", env=env, afresh=afresh, cwd=tmp_path)
    out, err = process.communicate("three")
    expected = [["one", "two"], "three", str(tmp_path), "a word", False, "__main__", os.getpid()]
    loaded = not afresh and sys.platform == "linux"
    assert (out.startswith(str(expected)), out.endswith(" None\n"), err) == (True, not loaded, "")


@afresh
def test_how_it_ends_is_told(afresh: bool) -> None:
    script = "import os, sys; os.kill(os.getpid(), 9) if sys.argv[1] == 'killed' else sys.exit(sys.argv[1])"
    ended = run_python("-c", script, "killed", env=environment(), afresh=afresh)
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "")
    ended = run_python("-c", script, "refused", env=environment(), afresh=afresh)
    assert (ended.returncode, ended.stderr) == (1, "refused\n")


@afresh
def test_a_module_is_run(tmp_path: Path, afresh: bool) -> None:
    (tmp_path / "told.py").write_text("import sys; print(__name__, sys.argv)")
    process = start_python("-m", "told", "x", env=environment(tmp_path), afresh=afresh)
    assert finish(process) == f"__main__ [{str(tmp_path / 'told.py')!r}, 'x']\n"
