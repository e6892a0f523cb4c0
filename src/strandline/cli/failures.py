"""What a person, or a program, is told when a command fails: one sentence, one hint, one exit code."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import partial

from strandline.errors import Cancelled, StrandlineError

USAGE = 2
"""The exit code of a command line that cannot be understood."""
INTERRUPTED = 130
"""The exit code after Ctrl-C, as a shell has it."""

_IN_COMMANDS = (
    (re.compile(r"db\.wait\((?:'([^']*)'|id)\)"), "operations wait"),
    (re.compile(r"db\.cancel\((?:'([^']*)'|id)?\)"), "operations cancel"),
    (re.compile(r"db\.forget\((?:'([^']*)'|id)?\)"), "operations forget"),
    (re.compile(r"db\.operations\(()\)"), "operations list"),
    (re.compile(r"db\.check\((?:'([^']*)'|path)\)"), "check"),
    (re.compile(r"db\.verify\((?:'([^']*)'|[a-z]*)\)"), "check --collection"),
    (re.compile(r"db\.ls\((?:'([^']*)')?\)"), "ls"),
    (re.compile(r"db\.describe\((?:'([^']*)'|path)?\)"), "describe"),
    (re.compile(r"db\.maintain\(()\)"), "maintain"),
)
"""Hints speak of the API; here they speak of the commands that do the same."""


def tell(error: StrandlineError, *, as_json: bool = False) -> int:
    """Say on stderr what went wrong; return the exit code."""
    return say(error.message, hint_for_shell(error.hint), error.code, error.exit_code, as_json=as_json)


def say(message: str, hint: str, code: str, exit_code: int, *, as_json: bool = False) -> int:
    sys.stdout.flush()
    if as_json:
        body = {"error": {"code": code, "message": message, "hint": hint, "exit_code": exit_code}}
        sys.stderr.write(json.dumps(body, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(
            f"{_colored('error:', 31)} {_sentence(message)} [{code}]\n{_colored('hint:', 36)} {hint}\n"
        )
    sys.stderr.flush()
    return exit_code


def hint_for_shell(hint: str) -> str:
    for pattern, command in _IN_COMMANDS:
        hint = pattern.sub(partial(_as_command, command), hint)
    return hint


def _as_command(command: str, found: re.Match[str]) -> str:
    return " ".join(filter(None, ["strandline", command, found[1] or ""]))


def interrupted(*, as_json: bool = False, is_late: bool = False) -> int:
    if is_late:
        message, hint = "interrupted when it was done already", "What it has changed is there."
    else:
        message = "interrupted"
        hint = "What was committed before stays, and nothing half done is visible. Run it again as you like."
    return say(message, hint, Cancelled.code, INTERRUPTED, as_json=as_json)


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def _colored(text: str, color: int) -> str:
    return f"\x1b[{color}m{text}\x1b[0m" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else text
