"""The command line: ``strandline``.

Each command has a module of the same name; the other modules are shared. Modules that are slow to import
(Spark, Arrow, the SQL parser, progress bars, the shell's editor) are imported inside the functions that need
them. So a command that reads only metadata answers at once and starts no JVM.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Never raises.

    Args:
        args: the words of the command line. None: use those of this process; its standard streams and its
            garbage collector are then set up, too.
    """
    if args is not None:
        return _run(args)
    # Nearly all objects of a command live until the process ends. Collect garbage only after more
    # allocations than the imports make.
    gc.set_threshold(500_000)
    _open_streams()
    code = _run(sys.argv[1:])
    if code == 130:
        # After Ctrl-C, do not wait for busy threads. The JVM exits when this process has exited.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    if "duckdb" not in sys.modules:  # DuckDB reports objects that are left at the end as leaks, on stderr.
        gc.freeze()
    return code


def _open_streams() -> None:
    """Open closed standard streams on /dev/null, so that no file opened later gets their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _run(args: Sequence[str]) -> int:
    from strandline.cli.app import run

    return run(list(args))
