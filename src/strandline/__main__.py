"""``python -m strandline`` is ``strandline``, also where the command is not on the path."""

import sys

from strandline.cli import main

sys.exit(main())
