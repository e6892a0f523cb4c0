"""Problems that need attention. ``db.status()`` lists them, and alarms are raised for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Grade: TypeAlias = Literal["fine", "warning", "critical"]
GRADES: tuple[Grade, ...] = ("fine", "warning", "critical")

ProblemKind: TypeAlias = Literal[
    "rpo_missed",
    "proof_missed",
    "no_backup",
    "not_restorable",
    "older_not_restorable",
    "not_uploaded",
    "repository_away",
    "backup_old",
    "not_verified",
    "chain_long",
    "not_backed_up",
    "tables_missing",
    "tables_unprotected",
    "backup_failed",
    "backup_missed",
    "verification_failed",
    "verification_missed",
    "drill_failed",
    "drill_missed",
    "operation_failed",
    "operation_stuck",
    "stream_behind",
    "channel_failed",
]
"""Kinds of problems, for programs. A kind and a subject identify an alarm."""


@dataclass(frozen=True, kw_only=True)
class Attention:
    """A problem that needs attention.

    Attributes:
        kind: The kind of the problem, such as ``rpo_missed``.
        about: A collection, an operation, a stream, a schedule, a channel, or the word ``tables``.
        subject: The subject of the alarm for the problem. It differs from ``about`` for failed backups,
            verifications and drills: these are about an operation or a schedule, and the subject is the
            collection.
        message: The problem in one sentence.
        hint: The remedy.
    """

    level: Grade
    kind: ProblemKind
    about: str
    subject: str
    message: str
    hint: str
