"""The interactive shell: multi-line statements, history, completion, and commands such as ``\\d``."""

from __future__ import annotations

import os
import shlex
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import completion_is_selected, is_done
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped]

from strandline import __version__
from strandline.cli import failures
from strandline.cli.describe import tell_description
from strandline.cli.progress import LeftAlone
from strandline.cli.session import Cli
from strandline.cli.sql import read_file
from strandline.cli.sql_completion import SqlCompleter
from strandline.cli.statements import run_text
from strandline.cli.values import duration
from strandline.errors import Internal, InvalidArgument, StrandlineError, SyntaxFault
from strandline.sql.tokens import quote, tokenize

if TYPE_CHECKING:
    from strandline.api import Database

HELP = """\
End a statement with ; and press Enter. Tab completes keywords and names, \
the arrow keys walk through the history.
  \\d [PATH]      list a directory, or describe a table
  \\dt            all tables
  \\db [NAME]     backup collections, or the backups of one
  \\do            operations
  \\i FILE        run the statements of a file
  \\timing        switch on or off: show how long each statement takes
  \\x             switch on or off: show each row as a list of its columns
  \\? or \\help    this help
  \\q             leave (so do exit, quit and Ctrl-D)
BEGIN; opens a transaction. COMMIT; commits it and ROLLBACK; discards it. \
While one is open, the prompt has a star."""

LEAVE = ("exit", "quit")
WORDS = (*LEAVE, "help")
"""Commands that work without a backslash and without a semicolon."""


class Shell:
    """One interactive session. Errors are shown and do not end it."""

    def __init__(self, cli: Cli, db: Database) -> None:
        self._cli = cli
        self._db = db
        self._timing = False
        self._session: PromptSession[str] = PromptSession(
            history=_history(),
            completer=SqlCompleter(db),
            complete_while_typing=False,
            lexer=PygmentsLexer(SqlLexer),
            multiline=True,
            prompt_continuation="       ...> ",
            key_bindings=_keys(),
            enable_open_in_editor=True,
        )

    def run(self) -> None:
        """Read and run statements until the end of input."""
        self._cli.output.line(
            f"Strandline {__version__}, warehouse {self._cli.folder()}. \\? for help, \\q to leave."
        )
        while True:
            try:
                star = "*" if self._db._transactions.current is not None else ""
                text = self._session.prompt(ANSI(f"strandline{star}> ")).strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
            if not self._handle(text):
                break
        if self._db._transactions.current is not None:
            self._db._transactions.rollback()
            self._cli.output.note("The open transaction was rolled back.")

    def _handle(self, text: str) -> bool:
        """Run one input. Return False to leave the shell."""
        started = time.monotonic()
        try:
            word = _bare(text)
            if word in WORDS:
                return self._command("\\q" if word in LEAVE else "\\?")
            if text.startswith("\\"):
                return self._command(text)
            run_text(self._cli, self._db, text, stay=True)
        except StrandlineError as error:
            self._report_failure(error)
        except LeftAlone:
            pass
        except KeyboardInterrupt as interrupt:
            failures.tell(interrupt, self._cli.output)
        except Exception as error:
            self._report_failure(Internal(f"an unexpected {type(error).__name__}: {error}"))
        if self._timing and text:
            self._cli.output.note(f"took {duration(time.monotonic() - started)}")
        return True

    def _report_failure(self, error: StrandlineError) -> None:
        if self._cli.debug:
            traceback.print_exc()
        failures.tell(error, self._cli.output)

    def _command(self, text: str) -> bool:
        name, _, rest = text.rstrip(";").strip().partition(" ")
        if name in ("\\q", "\\quit", "\\exit"):
            return False
        commands: dict[str, Callable[[str], None]] = {
            "\\d": self._describe,
            "\\dt": lambda _: self._sql("SHOW TABLES"),
            "\\db": self._backups,
            "\\do": lambda _: self._sql("SHOW OPERATIONS"),
            "\\i": self._file,
            "\\timing": self._time,
            "\\x": self._expand,
            **dict.fromkeys(("\\?", "\\h", "\\help"), lambda _: self._cli.output.line(HELP)),
        }
        if name not in commands:
            raise InvalidArgument(f"there is no command {name}", "Type \\? for the list.")
        commands[name](rest.strip())
        return True

    def _sql(self, text: str) -> None:
        run_text(self._cli, self._db, text, stay=True)

    def _describe(self, path: str) -> None:
        found = self._db.describe(path or "/")
        if found["type"] in ("table", "index", "stream"):
            self._cli.output.result(found, lambda: tell_description(self._cli.output, found))
            return
        entries = self._db.ls(path or "/")
        answer = [entry._asdict() for entry in entries]
        self._cli.output.result(
            answer,
            lambda: self._cli.output.table(
                ("name", "type"), [(e.name, e.type) for e in entries], count=False
            ),
        )

    def _backups(self, collection: str) -> None:
        self._sql(f"SHOW BACKUPS IN {quote(collection)}" if collection else "SHOW BACKUP COLLECTIONS")

    def _file(self, name: str) -> None:
        if not name:
            raise InvalidArgument("\\i needs the name of a file", "Write \\i FILE.")
        self._sql(read_file(" ".join(shlex.split(name))))

    def _time(self, _: str) -> None:
        self._timing = not self._timing
        self._cli.output.line(f"timing is {'on' if self._timing else 'off'}")

    def _expand(self, _: str) -> None:
        output = self._cli.output
        output.expanded = not output.expanded
        output.line(f"expanded display is {'on' if output.expanded else 'off'}")


def _bare(text: str) -> str:
    return text.rstrip("; \n").lower()


def _history() -> History:
    """Return the history file in the user's state folder. If it cannot be written, keep history in memory."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    file = Path(base, "strandline", "history")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=~completion_is_selected & ~is_done)
    def enter(event: KeyPressEvent) -> None:
        buffer: Buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    @keys.add("enter", filter=completion_is_selected)
    def choose(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    return keys


def is_complete(text: str) -> bool:
    """Return whether Enter runs the text.

    True for an empty text, a command of the shell, and a text that ends with ``;`` outside strings and
    comments.
    """
    stripped = text.strip()
    if not stripped or stripped.startswith("\\") or _bare(stripped) in WORDS:
        return True
    try:
        tokens: Any = tokenize(text)
    except SyntaxFault as fault:
        # An open string or comment continues on the next line.
        return stripped.endswith(";") and "not closed" not in fault.message
    return bool(tokens) and tokens[-1].key == ";"
