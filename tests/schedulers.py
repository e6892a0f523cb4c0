"""Orders in which the parts of an operation can go on, other than the one they were planned in."""

from __future__ import annotations

import random
from collections.abc import Sequence

from strandline.catalog.operations import PartRow


class Shuffled:
    """Any runnable part at every transition, as the random numbers fall: a seed tells the whole
    interleaving."""

    def __init__(self, random_: random.Random) -> None:
        self._random = random_

    def choose(self, runnable: Sequence[PartRow]) -> PartRow:
        return self._random.choice(runnable)


class Explicit:
    """Each part to its end, in the order of the given ids."""

    def __init__(self, part_ids: Sequence[int]) -> None:
        self._rank = {part_id: rank for rank, part_id in enumerate(part_ids)}

    def choose(self, runnable: Sequence[PartRow]) -> PartRow:
        return min(runnable, key=lambda part: self._rank[part.id])
