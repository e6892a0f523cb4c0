"""How a failed command is reported: one sentence, one hint, one exit code."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from strandline.cancellation import Interrupted
from strandline.cli.logs import json_line
from strandline.errors import Cancelled, StrandlineError

if TYPE_CHECKING:
    from strandline.cli.output import Output

USAGE = 2
"""Exit code of a command line with a syntax error."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as in a shell."""

_IN_COMMANDS = (
    (re.compile(r"db\.wait\((?:'([^']*)'|id)\)"), "operations wait"),
    (re.compile(r"db\.cancel\((?:'([^']*)'|id)?\)"), "operations cancel"),
    (re.compile(r"db\.forget\((?:'([^']*)'|id)?\)"), "operations forget"),
    (re.compile(r"db\.operations\(()\)"), "operations list"),
    (re.compile(r"db\.operation\((?:'([^']*)'|id)\)"), "operations get"),
    (re.compile(r"db\.check\((?:'([^']*)'|path)\)"), "check"),
    (re.compile(r"db\.verify\((?:'([^']*)'|[a-z]*)\)"), "check --collection"),
    (re.compile(r"db\.ls\((?:'([^']*)')?\)"), "ls"),
    (re.compile(r"db\.describe\((?:'([^']*)'|path)?\)"), "describe"),
    (re.compile(r"db\.maintain\(()\)"), "maintain"),
)
"""API calls in hints, and the commands that replace them on the command line."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The report of a failure.

    Attributes:
        operation: the id of the operation that the command started or waited for. None: no operation.
        outcome: what happens to this operation.
    """

    code: str
    message: str
    hint: str
    exit_code: int
    operation: str | None = None
    outcome: str | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields that are set, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def fault_of(error: StrandlineError | KeyboardInterrupt) -> Fault:
    if isinstance(error, KeyboardInterrupt):
        if isinstance(error, Interrupted) and error.is_late:
            message, hint = "interrupted after it was committed", "Its changes are visible."
        else:
            message = "interrupted"
            hint = "Earlier commits stay, and nothing half done is visible. You can run it again."
        return Fault(code=Cancelled.code, message=message, hint=hint, exit_code=INTERRUPTED)
    hint = hint_for_shell(error.hint)
    return Fault(
        code=error.code,
        message=error.message,
        hint=hint,
        exit_code=error.exit_code,
        operation=error.operation,
        outcome=error.outcome,
    )


def document(fault: Fault) -> str:
    """Return a failure as JSON."""
    return json.dumps({"error": fault.fields()}, ensure_ascii=False)


def tell(error: StrandlineError | KeyboardInterrupt, output: Output, *, as_json: bool = False) -> int:
    """Report an error on stderr (and stdout with JSON); return the exit code."""
    return say(fault_of(error), output, as_json=as_json)


def say(fault: Fault, output: Output, *, as_json: bool = False) -> int:
    """Print a failure on stderr; return its exit code.

    With JSON, also print it on stdout if no document was printed there yet. If stdout and stderr are the same
    terminal, pipe or file, print it only once.
    """
    if as_json or output.as_json:
        told = f"{document(fault)}\n"
        is_told = not output.answered and _are_one_place()
        if not output.answered:
            sys.stdout.write(told)
            output.answered = True
        sys.stdout.flush()
        if not is_told:
            sys.stderr.write(told)
    elif output.notes_as_json:
        sys.stdout.flush()
        sys.stderr.write(json_line("error", {"event": "error", **fault.fields()}) + "\n")
    else:
        sys.stdout.flush()
        message, code = _sentence(fault.message), fault.code
        sys.stderr.write(f"{_color('error:', 31)} {message} [{code}]\n{_color('hint:', 36)} {fault.hint}\n")
    sys.stderr.flush()
    return fault.exit_code


def _are_one_place() -> bool:
    """Return whether stdout and stderr are the same terminal, pipe or file."""
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno()))
    except (OSError, ValueError):  # A stream is closed, or has no file descriptor.
        return False


def hint_for_shell(hint: str) -> str:
    """Replace API calls in a hint by commands."""
    for pattern, command in _IN_COMMANDS:
        hint = pattern.sub(partial(_as_command, command), hint)
    return hint


def _as_command(command: str, found: re.Match[str]) -> str:
    return " ".join(filter(None, ["strandline", command, found[1] or ""]))


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def _color(text: str, color: int) -> str:
    return f"\x1b[{color}m{text}\x1b[0m" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else text
