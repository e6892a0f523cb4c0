"""How much a run tries of what tests only sample: ``make test`` a part, ``make exhaustive`` all of it."""

from __future__ import annotations

import os

EVERY = bool(os.environ.get("STRANDLINE_EVERY"))
"""Every crash point and every order, instead of a few of each kind."""
CLUSTER = EVERY or bool(os.environ.get("STRANDLINE_CLUSTER"))
"""All that is tried on a cluster and over Spark Connect, instead of a smoke."""
FACTOR = int(os.environ.get("STRANDLINE_EXAMPLES", "0"))
"""So many times as many random examples, and other ones each time; 0: always the same ones."""
MIX_SECONDS = float(os.environ.get("STRANDLINE_MIX_SECONDS", "15"))
"""How long the mix of all that can happen at once lasts."""
