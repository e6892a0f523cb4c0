"""Makes ``python -m strandline`` run the command ``strandline``, even if that is not on the path."""

import sys

from strandline.cli import main

sys.exit(main())
