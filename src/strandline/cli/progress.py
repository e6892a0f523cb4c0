"""Wait for an operation and show its progress: a bar on a terminal, plain lines otherwise.

On Ctrl-C, ask whether to cancel the operation, leave it running or wait.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from strandline.cli.session import Cli
from strandline.cli.status_line import Left
from strandline.cli.values import duration, size
from strandline.errors import PreconditionFailed, Unavailable

if TYPE_CHECKING:
    from strandline.api import Database
    from strandline.api.progress import OperationInfo
    from strandline.catalog.part_progress import ShardInfo

Show: TypeAlias = "Callable[[OperationInfo], None]"

POLL_SECONDS = 0.1
PATIENCE_SECONDS = 0.4
"""Time to wait before progress is shown."""
LINE_SECONDS = 2.0
"""Minimum time between two plain progress lines."""


_SET = "STRANDLINE_BACKGROUND"
"""Environment variable with further arguments of a background process."""
_RUN = f"""
import sys
sys.path[:] = filter(None, sys.path)
import json, os
sys.argv[1:1] = json.loads(os.environ.pop("{_SET}"))
from strandline.cli import main
sys.exit(main())
"""
"""Code of a background process. Unlike ``python -m`` it imports nothing from the current folder."""


class LeftAlone(Exception):
    """Raised when a command ends before its operation.

    Attributes:
        goes_on: whether another process continues the operation. False: it stays unfinished until a process
            continues it.
    """

    def __init__(self, operation_id: str, *, goes_on: bool = False) -> None:
        super().__init__(operation_id)
        self.operation_id = operation_id
        self.goes_on = goes_on


def words(operation: OperationInfo) -> str:
    """Return the progress of an operation in increments, parts and bytes."""
    progress, said = operation.progress, []
    if progress.get("increments"):
        said.append(f"increment {progress.get('increment', 0)} of {progress['increments']}")
    if operation.parts:
        unit = "shards" if operation.kind == "restore" else "parts"
        said.append(f"{operation.parts_done} of {operation.parts} {unit}")
    if progress.get("bytes_total"):
        said.append(f"{size(progress.get('bytes', 0))} of {size(progress['bytes_total'])}")
    return ", ".join(said)


def name_of(shard: ShardInfo) -> str:
    """Return the kind of a shard, its number within its table or index, and the path."""
    number = "" if shard.shard is None else f" {shard.shard}"
    return f"{shard.kind}{number}" + ("" if shard.path is None else f" of {shard.path}")


def slowest(operation: OperationInfo) -> list[str]:
    """Return a list with a text about the shard that runs longest. It is empty if no shard is running."""
    found = operation.slowest
    if found is None or found.since is None:
        return []
    again = "" if found.attempt == 1 else f", try {found.attempt}"
    return [f"slowest: {name_of(found)} ({duration(max(0.0, time.time() - found.since))}{again})"]


def pace(operation: OperationInfo, said: Left | None = None) -> list[str]:
    """Return the speed and the remaining time of an operation, each as a text if it is known.

    Args:
        said: the displayed remaining time, which never rises. None: the operation's own estimate is returned,
            which may rise.
    """
    done, seconds = operation.progress.get("bytes", 0), time.time() - operation.created
    left = operation.seconds_left if said is None else said.smooth(operation.seconds_left)
    return [
        *([f"{size(done / seconds)}/s"] if done and seconds > 0 else []),
        *([] if left is None else [f"{duration(left)} left"]),
    ]


def took(operation: OperationInfo) -> str:
    return duration(max(0.0, (operation.ended or time.time()) - operation.created))


def follow(
    cli: Cli, db: Database, operation_id: str, *, began: bool = False, stay: bool = False
) -> OperationInfo:
    """Wait until an operation has ended; return it, or raise the error that it ended with.

    Args:
        began: whether this command started the operation. If so, and this function raises an error, the
            operation is undone unless the error says otherwise.
        stay: whether this process continues after the command. If so, it also carries out an operation that
            the user leaves running.
    """
    if not began:
        db.operation(operation_id)  # Raises at once if the operation is unknown.
    waiting = _Waiting(db, operation_id, db._attend if began else db.wait)
    while True:
        try:
            with _display(cli) as show:
                return waiting.watch(show)
        except KeyboardInterrupt:
            _ask(cli, db, waiting.at, stay)


class _Waiting:
    """Waits for an operation in a separate thread.

    If no other process carries out the operation, this thread carries it out. Ctrl-C must not interrupt this
    work.
    """

    def __init__(self, db: Database, operation_id: str, wait: Callable[..., OperationInfo]) -> None:
        self._db = db
        self._wait_for = wait
        self._id = operation_id
        self.at = operation_id
        """Id of the awaited operation: the given one, or an operation that started when it ended."""
        self._found: OperationInfo | None = None
        self._failure: Exception | None = None
        # Not Thread.join: after Ctrl-C it reports a running thread as ended (bpo-45274).
        self._ended = threading.Event()
        threading.Thread(target=self._wait, name=f"strandline-follow-{operation_id}", daemon=True).start()

    def _wait(self) -> None:
        try:
            self._found = self._wait_for(self._id, on_progress=self._note)
        except Exception as error:
            self._failure = error
        finally:
            self._ended.set()

    def _note(self, operation: OperationInfo) -> None:
        self.at = operation.id

    def watch(self, show: Show) -> OperationInfo:
        patient_until = time.monotonic() + PATIENCE_SECONDS
        while not self._ended.wait(POLL_SECONDS):
            if time.monotonic() > patient_until:
                with suppress(Unavailable):  # The waiting thread handles this error.
                    show(self._db.operation(self.at))
        if self._failure is not None:
            raise self._failure
        assert self._found is not None
        return self._found


@contextmanager
def _display(cli: Cli) -> Iterator[Show]:
    if cli.output.as_json or cli.output.quiet:
        yield lambda operation: None
    elif sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _Lines(cli)


class _Lines:
    """Prints a line if the progress or the slowest shard has changed, at most every ``LINE_SECONDS``."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self._last: tuple[str, str] = ("", "")
        self._at = 0.0
        self._left: defaultdict[str, Left] = defaultdict(Left)

    def __call__(self, operation: OperationInfo) -> None:
        text = f"{operation.kind}: {operation.percent:.0f} %, {words(operation)}"
        slow = operation.slowest
        state = text, "" if slow is None else f"{slow.id}, {slow.attempt}"
        if state != self._last and time.monotonic() - self._at >= LINE_SECONDS:
            self._last, self._at = state, time.monotonic()
            self._cli.output.note(
                ", ".join([text, *pace(operation, self._left[operation.id]), *slowest(operation)])
            )


@contextmanager
def _bar() -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task: Any = None
        shown = ""
        left = Left()

        def show(operation: OperationInfo) -> None:
            nonlocal task, shown, left
            if operation.id != shown:  # An operation that started when the former one ended.
                task, shown = progress.add_task(operation.kind, total=100.0, words=""), operation.id
                left = Left()
            said = ", ".join(filter(None, [words(operation), *pace(operation, left), *slowest(operation)]))
            progress.update(task, completed=operation.percent, words=said)

        yield show


def _ask(cli: Cli, db: Database, operation_id: str, stay: bool) -> None:
    """Ask what to do with an operation after Ctrl-C.

    Returns if the command is to continue waiting: for the end of the operation, or of the rollback that the
    user has chosen. Raises ``LeftAlone`` if the operation is left running or unfinished.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or cli.output.as_json:
        if cli.service is not None:
            leave_running(cli, operation_id)
        cli.output.note(
            f"interrupted; operation {operation_id} stays unfinished.\n"
            f"Go on with: strandline operations wait {operation_id}\n"
            f"Undo it with: strandline operations cancel {operation_id}"
        )
        if not stay:
            db._operations.let_go()
        raise LeftAlone(operation_id)
    answer = _answer(
        f"\nOperation {operation_id} is still running. [c]ancel and undo it, [l]eave it running, or [w]ait? "
    )
    if answer == "w":
        return
    if answer == "c":
        try:
            db.cancel(operation_id)
        except PreconditionFailed:
            cli.output.note("It has ended in the meantime.")
        return
    if not stay and cli.service is None:
        # Closing the session releases the operation, so that the background process can take it over.
        db._operations.let_go()
        db.close()
        run_in_background(cli, operation_id)
    leave_running(cli, operation_id)


def leave_running(cli: Cli, operation_id: str) -> NoReturn:
    """End an interrupted command whose operation is continued by another process."""
    cli.output.note(
        f"It goes on in the background. Follow it with: strandline operations wait {operation_id}\n"
        f"Undo it with: strandline operations cancel {operation_id}"
    )
    raise LeftAlone(operation_id, goes_on=True)


def _answer(question: str) -> str:
    """Return ``c``, ``l`` or ``w``; another Ctrl-C or the end of input means ``l`` (leave)."""
    while True:
        sys.stderr.write(question)
        sys.stderr.flush()
        try:
            text = sys.stdin.readline()
        except KeyboardInterrupt:
            return "l"
        letter = text.strip().lower()[:1] if text else "l"
        if letter in ("c", "l", "w") and letter:
            return letter
        question = "Please answer c, l or w: "


def run_in_background(cli: Cli, operation_id: str) -> None:
    """Start a background process that carries out an operation until it ends."""
    from strandline.api.connector import place_of

    # Other users can see the arguments of a process, but not its environment.
    url = cli.catalog_url()
    assigned = [word for each in cli.assigned for word in ("--set", each)]
    env = {**os.environ, **({"STRANDLINE_CATALOG": url} if url else {}), _SET: json.dumps(assigned)}
    profile = ["--profile", cli.profile] if cli.profile else []
    command = [sys.executable, "-c", _RUN, "-w", place_of(cli.folder()), *profile]
    nowhere = subprocess.DEVNULL
    subprocess.Popen(
        [*command, "operations", "wait", operation_id],
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        start_new_session=True,
        env=env,
    )
