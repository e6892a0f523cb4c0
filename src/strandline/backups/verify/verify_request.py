"""The request of a VERIFY statement or of a call of ``db.verify``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from strandline.backups.verify.verification_history import LEVELS, Level
from strandline.errors import InvalidArgument
from strandline.sql.options import StatementOptions
from strandline.sql.statements import Setting

SETTINGS = ("LEVEL", "SAMPLE", "AGAIN", "REPAIR")


@dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """What to verify, and how thoroughly.

    Attributes:
        at: Name of the backup to verify, together with the backups that it builds on. None: verify all
            backups.
        sample: Percentage of the objects to check. None: no sample is taken.
        again: Also check objects that were verified before.
    """

    collection: str
    at: str | None
    level: Level
    sample: int | None
    again: bool

    @staticmethod
    def of(
        collection: str, *, at: str | None, level: str | None, sample: int | None, again: bool | None
    ) -> VerifyRequest:
        """Check the arguments and build a request.

        Args:
            level: One of ``LEVELS``. None: ``checksums``.
            again: Also check objects that were verified before. None: do so only if neither a level nor a
                sample is given. So a request without options verifies every byte of all objects.
        """
        found = next((known for known in LEVELS if known == (level or "checksums")), None)
        if found is None:
            raise InvalidArgument(
                f"the level cannot be {level!r}", f"It is one of {', '.join(map(repr, LEVELS))}."
            )
        is_percent = isinstance(sample, int) and not isinstance(sample, bool) and 1 <= sample <= 100
        if sample is not None and not is_percent:
            raise InvalidArgument(
                f"the sample cannot be {sample!r}", "Give a whole number of percent, from 1 to 100."
            )
        is_all = level is None and sample is None
        return VerifyRequest(
            collection=collection, at=at, level=found, sample=sample, again=is_all if again is None else again
        )


def verify_settings(given: Sequence[Setting]) -> dict[str, Any]:
    """Return the settings of a statement as arguments of ``db.verify``.

    A statement without LEVEL verifies checksums of objects that were not verified before.
    """
    options = StatementOptions("VERIFY", given, SETTINGS)
    sample = options.get("SAMPLE")
    found = {
        "level": options.get("LEVEL") or "checksums",
        "sample": int(sample) if isinstance(sample, Decimal) and sample == int(sample) else sample,
        "again": options.boolean("AGAIN"),
        "repair": options.boolean("REPAIR"),
    }
    return {name: value for name, value in found.items() if value is not None}
