"""The command line: ``strandline``.

One module per command, named like it; the others are what they share. Everything that is slow to import
(Spark, Arrow, the SQL parser, progress bars, the shell's editor) is imported by the function that needs it,
so that a command on metadata answers at once and starts no JVM.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; raises nothing. Without ``args`` it is the one that this
    process was started for."""
    if args is not None:
        return _run(args)
    # Nearly all that a command makes lives as long as its process, so to look for garbage in it takes time
    # and finds nothing: not before it has made more than what it loads.
    gc.set_threshold(500_000)
    _open_streams()
    code = _run(sys.argv[1:])
    if code == 130:
        # After Ctrl-C nobody waits for threads that are still busy. A JVM ends by itself when this process
        # has.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    gc.freeze()
    return code


def _open_streams() -> None:
    """Let streams that were closed lead nowhere. Else the next file that is opened would take their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _run(args: Sequence[str]) -> int:
    from strandline.cli.app import run

    return run(list(args))
