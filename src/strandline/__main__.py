"""Runs the command ``strandline`` for ``python -m strandline``, even if the command is not on the PATH."""

import sys

from strandline.cli import main

sys.exit(main())
