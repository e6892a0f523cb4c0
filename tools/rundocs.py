"""Run the examples of the documentation and compare their output with the page.

    python -m tools.rundocs docs/tutorial.md           # report differences
    python -m tools.rundocs --write docs/tutorial.md   # write the real output into the page

Runs blocks of these kinds: ``console`` (lines that start with ``$ `` are commands, the rest is their output),
``python`` (with ``>>>`` as a doctest, otherwise as a script) and ``sql`` (in the warehouse that the page
uses). Blocks of one page share a folder and run in order.

``...`` in an output matches anything. Names of backups and streams, ids of operations, times, durations and
sizes differ from run to run: they match anything of the same form. A name that was printed once is replaced
by the real one in later commands. A page must use one name for one thing.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = r"\d{14}Z(?:_[A-Za-z]+)?|\b[0-9a-f]{16}\b"
_LOOSE = (
    (re.compile(_NAME), _NAME),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    (re.compile(r"\b\d+(?:\.\d+)? m?s\b"), r"\d+(?:\.\d+)? m?s"),
    (re.compile(r"-?\b\d+(?:\.\d+)? (?:B|kB|MB|GB|%)"), r"-?\d+(?:\.\d+)? (?:B|kB|MB|GB|%)"),
    (re.compile(r"\.\.\."), r".*?"),
)
_PROGRESS = re.compile(r"^[a-z ]+: \d+ %, .*\n", re.MULTILINE)
"""A line that an operation prints only if it takes long."""

ROOT = Path(__file__).resolve().parent.parent
HOME = "/home/ada"
"""Name on the pages of the folder that the examples run in."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    start: int
    end: int


def blocks_of(page: str) -> list[Block]:
    found = []
    for match in _FENCE.finditer(page):
        if match[1] in ("console", "python", "sql"):
            found.append(
                Block(
                    match[1], match[2], page.count("\n", 0, match.start()) + 1, match.start(2), match.end(2)
                )
            )
    return found


@dataclass
class Runner:
    """The folder, environment and Python names of one page.

    ``replace``: texts of the page, with what replaces them on this machine.
    """

    folder: Path
    replace: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)

    def run(self, block: Block) -> tuple[str, list[str]]:
        """Run a block; return it with its real output, and the differences."""
        with _inside(self.folder):
            if block.language == "console":
                return self._console(block.text)
            if block.language == "sql":
                return block.text, self._sql(block.text)
            return block.text, self._python(block)

    def _console(self, text: str) -> tuple[str, list[str]]:
        lines, problems = [], []
        for command, expected in _commands(text):
            printed = self._said(self.shell(self._real(command)))
            if self._matches(expected, printed):
                lines += [f"$ {command}", *expected]
            else:
                problems.append(
                    f"$ {command}\n--- the page says\n" + "\n".join(expected) + f"\n--- it prints\n{printed}"
                )
                lines += [f"$ {command}", *printed.splitlines()]
        return "\n".join(lines) + "\n", problems

    def _sql(self, text: str) -> list[str]:
        where = os.environ.get("STRANDLINE_WAREHOUSE", "warehouse")
        strandline(["init", where])
        code, printed = strandline(["sql", self._real(text), "-w", where])
        return [] if code == 0 else [f"{text}\n--- it prints\n{printed}"]

    def _python(self, block: Block) -> list[str]:
        text = self._real(block.text)
        if ">>>" not in text:
            exec(compile(text, f"block at line {block.line}", "exec"), self.names)
            return []
        test = doctest.DocTestParser().get_doctest(text, self.names, f"block at line {block.line}", None, 0)
        report = io.StringIO()
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(test, out=report.write, clear_globs=False)
        self.names.update(test.globs)
        return [report.getvalue()] if runner.failures else []

    def shell(self, command: str) -> str:
        """Return what a command prints to stdout and stderr."""
        if match := re.fullmatch(r"export (\w+)=(.*)", command):
            os.environ[match[1]] = shlex.split(match[2])[0]
            return ""
        words = shlex.split(command, comments=True)
        if words[:1] == ["strandline"] and not re.search(
            r"[|<>&]", re.sub(r"'[^']*'|\"[^\"]*\"", "", command)
        ):
            return _PROGRESS.sub("", strandline(words[1:])[1]).replace(str(self.folder), HOME)
        done = subprocess.run(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return done.stdout.replace(str(self.folder), HOME)

    def _real(self, text: str) -> str:
        for said, meant in {HOME: str(self.folder), **self.replace, **self.known}.items():
            text = text.replace(said, meant)
        return text

    def _said(self, text: str) -> str:
        """Replace real names by those that the page used before."""
        for said, meant in self.known.items():
            text = text.replace(meant, said)
        return text

    def _matches(self, expected: list[str], printed: str) -> bool:
        said = "\n".join(line.rstrip() for line in expected).strip()
        pattern, names = _pattern(said)
        found = re.fullmatch(
            pattern, "\n".join(line.rstrip() for line in printed.splitlines()).strip(), re.DOTALL
        )
        if found is None:
            return False
        pairs = dict(zip(names, found.groups(), strict=True))
        if any(said != meant for said, meant in pairs.items() if said in self.known or meant in self.known):
            return False  # The page has two names for one thing, or one name for two.
        self.known.update((said, meant) for said, meant in pairs.items() if said not in self.known)
        return True


def _pattern(said: str) -> tuple[str, list[str]]:
    """Return a pattern with a group for each name that a later command may use."""
    pieces, names, at = "", [], 0
    together = re.compile("|".join(f"({loose.pattern})" for loose, _ in _LOOSE))
    for match in together.finditer(said):
        pieces += re.escape(said[at : match.start()])
        kind = next(n for n, value in enumerate(match.groups()) if value is not None)
        if kind == 0:
            names.append(match[0])
        pieces += f"({_LOOSE[0][1]})" if kind == 0 else f"(?:{_LOOSE[kind][1]})"
        at = match.end()
    return pieces + re.escape(said[at:]), names


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands with their output.

    A command continues on the next line after a backslash, or while a quote is open.
    """
    command: str | None = None
    expected: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            if command is not None:
                yield command, expected
            command, expected = line[2:], []
            while command.endswith("\\") or command.count('"') % 2 or command.count("'") % 2:
                command += "\n" + next(lines)
        else:
            expected.append(line)
    if command is not None:
        yield command, expected


def strandline(args: list[str]) -> tuple[int, str]:
    """Run the command line in this process, so that one Spark session serves all examples."""
    from strandline.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = main(args)
    return code, printed.getvalue()


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _commands_for_bash(folder: str) -> str:
    """Create the ``strandline`` command in a folder, for examples with pipes."""
    command = Path(folder, "strandline")
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m strandline.cli "$@"\n')
    command.chmod(0o755)
    return folder


def _package() -> Path:
    """Return the folder of the package under test: this clone's or the installed one."""
    spec = importlib.util.find_spec("strandline")
    return Path(spec.origin).parent.parent if spec and spec.origin else ROOT / "src"


def check(page: Path, *, write: bool = False, replace: dict[str, str] | None = None) -> list[str]:
    """Run a page in a new folder; return the differences."""
    text = page.read_text("utf-8")
    problems: list[str] = []
    before = dict(os.environ)
    with (
        tempfile.TemporaryDirectory(prefix="strandline-docs-") as folder,
        tempfile.TemporaryDirectory() as bin_,
    ):
        runner = Runner(Path(folder), replace or {})
        try:
            for name in ("STRANDLINE_WAREHOUSE", "STRANDLINE_CATALOG"):
                os.environ.pop(name, None)
            os.environ["PATH"] = f"{_commands_for_bash(bin_)}:{os.environ['PATH']}"
            os.environ["PYTHONPATH"] = str(_package())
            os.environ["XDG_STATE_HOME"] = str(Path(bin_, "state"))
            changed = []
            for block in blocks_of(text):
                new, found = runner.run(block)
                problems += [f"{page}:{block.line}: {problem}" for problem in found]
                changed.append((block, new))
        finally:
            for db in runner.names.values():
                if type(db).__name__ == "Database":
                    with contextlib.suppress(Exception):
                        db.close()
            os.environ.clear()
            os.environ.update(before)
    if write:
        for block, new in reversed(changed):
            text = text[: block.start] + new + text[block.end :]
        page.write_text(text, "utf-8")
    return problems


if __name__ == "__main__":
    sys.path.append(str(ROOT / "src"))  # An installed package takes precedence.
    chosen = [Path(name) for name in sys.argv[1:] if name != "--write"]
    found = [problem for page in chosen for problem in check(page, write="--write" in sys.argv)]
    print("\n\n".join(found) or "all examples print what the pages say")
    sys.exit(bool(found))
