"""``python -m strandline.cli`` is ``strandline``."""

import sys

from strandline.cli import main

sys.exit(main())
