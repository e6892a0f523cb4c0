"""Statement settings that limit the copying of an operation: bytes per second, and files at a time."""

from __future__ import annotations

from strandline.settings import Limits
from strandline.sql.options import StatementOptions

RATE, COPIES = "MAX_BYTES_PER_SECOND", "COPIES"
LIMITS = (RATE, COPIES)
MOST_COPIES = 1000


def limits_of(options: StatementOptions, usual: Limits) -> Limits:
    """Return the limits of an operation.

    Args:
        options: Settings of its statement.
        usual: Limits that apply if the statement gives none.
    """
    rate = options.number(RATE, 0, 1e15)
    copies = options.number(COPIES, 1, MOST_COPIES, whole=True)
    return Limits(
        bytes_per_second=usual.bytes_per_second if rate is None else rate,
        copies=usual.copies if copies is None else int(copies),
        spread=usual.spread and copies is None,
    )
