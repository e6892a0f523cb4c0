"""The command line: ``strandline``.

One module per group of commands. Everything that is slow to import (Spark, Arrow, the SQL parser, progress bars, the shell's editor) is
imported by the function that needs it, so that a command on metadata answers at once and starts no JVM.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run one command (default: this process's arguments); answers its exit code and raises nothing."""
    from strandline.cli.app import run

    return run(list(sys.argv[1:] if args is None else args))
