"""The command line: ``strandline``.

One module per group of commands. Everything that is slow to import (Spark, Arrow, the SQL parser, progress bars, the shell's editor) is
imported by the function that needs it, so that a command on metadata answers at once and starts no JVM.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and answer its exit code; raises nothing. Without ``args`` it is this process's own, which ends with it."""
    from strandline.cli.app import run

    if args is not None:
        return run(list(args))
    code = run(sys.argv[1:])
    gc.freeze()  # What is left goes with the process; to look for garbage in it once more would take longer than many a command.
    return code
