"""SQL in cells of a notebook: ``%load_ext strandline``, then ``%strandline warehouse`` and ``%%strandline``.

    %load_ext strandline
    %strandline warehouse

    %%strandline
    SELECT k, v FROM t WHERE k = :key

Strandline does not depend on IPython. IPython calls ``load_ipython_extension`` and passes its shell.
"""

from __future__ import annotations

import argparse
import shlex
from typing import Any, NoReturn

from strandline.api import Database, connect
from strandline.api.result import Result
from strandline.errors import InvalidArgument, StrandlineError
from strandline.sql.binding import names_of
from strandline.sql.tokens import tokenize

__all__ = ["load_ipython_extension"]

_USAGE = (
    "%strandline WAREHOUSE [--catalog URL], then %%strandline [--db VARIABLE] [--into VARIABLE] in a cell."
)


def load_ipython_extension(shell: Any) -> None:
    """Add ``%strandline`` and ``%%strandline`` to a notebook. ``%load_ext strandline`` calls this."""
    magic = NotebookMagic(shell)
    shell.register_magic_function(magic.connect, "line", "strandline")
    shell.register_magic_function(magic.run, "cell", "strandline")


class NotebookMagic:
    """The magics of one notebook, and the connection that ``%strandline`` has opened."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._own: Database | None = None

    def connect(self, line: str) -> None:
        """Connect to a warehouse; later cells use it. The former connection of this magic is closed."""
        with _ShortErrors():
            parser = _Parser(prog="%strandline", add_help=False)
            parser.add_argument("warehouse")
            parser.add_argument("--catalog")
            given = parser.parse_args(_split(line))
            opened = connect(given.warehouse, catalog=given.catalog)
            if self._own is not None:
                self._own.close()
            self._own = opened

    def run(self, line: str, cell: str) -> Result | None:
        """Run the statements of a cell; show the result of the last one.

        A marker ``:name`` gets the value of the notebook's variable ``name``. ``--into`` stores the result in
        a variable instead of showing it. ``--db`` names the variable with the database. The default is the
        connection that ``%strandline`` has opened, or else the variable ``db``.
        """
        with _ShortErrors():
            parser = _Parser(prog="%%strandline", add_help=False)
            parser.add_argument("--db")
            parser.add_argument("--into")
            given = parser.parse_args(_split(line))
            result = self._database(given.db).sql(cell, self._values(cell))
            if given.into is None:
                return result
            self._shell.user_ns[given.into] = result
            return None

    def _database(self, name: str | None) -> Database:
        if name is None and self._own is not None:
            return self._own
        found = self._shell.user_ns.get(name or "db")
        if not isinstance(found, Database):
            raise InvalidArgument(
                f"the variable {name} is no database" if name else "no warehouse is open in this notebook",
                "Open one with %strandline WAREHOUSE, or assign db = strandline.connect(WAREHOUSE).",
            )
        return found

    def _values(self, cell: str) -> dict[str, Any] | None:
        names = sorted(names_of(tokenize(cell)))
        if missing := [name for name in names if name not in self._shell.user_ns]:
            raise InvalidArgument(
                f"the notebook has no variable {missing[0]} for the marker :{missing[0]}",
                f"Assign {missing[0]} in a cell before this one.",
            )
        return {name: self._shell.user_ns[name] for name in names} or None


class _Parser(argparse.ArgumentParser):
    """A parser that reports wrong arguments as errors of Strandline instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise InvalidArgument(f"{self.prog}: {message}", f"The form is: {_USAGE}")


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise InvalidArgument(f"{line!r} cannot be read: {error}", f"The form is: {_USAGE}") from None


class _ShortErrors:
    """A context manager that makes IPython show errors of Strandline without a traceback."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StrandlineError):
            error.__dict__["_render_traceback_"] = lambda: str(error).splitlines()
