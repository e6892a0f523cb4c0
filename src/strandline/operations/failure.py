"""Exceptions that stop a part or an operation, and the storage of failed attempts."""

from __future__ import annotations

from strandline.catalog import part_progress, sessions
from strandline.catalog.operations import PartRow
from strandline.catalog.transactions import Writer
from strandline.errors import Cancelled, Internal, StrandlineError


class Lost(Exception):
    """The operation has ended, or belongs to another session now."""


class Cancelling(Exception):
    """The operation was cancelled or refused, and must be undone."""


def save_failed(tx: Writer, part: PartRow, error: StrandlineError) -> None:
    """Store a failed attempt of a part."""
    began = tx.now if part.began is None else part.began
    now = began + (part.seconds or 0.0)
    attempt = part_progress.attempt_of(error, began=began, now=now, process=sessions.this_process())
    part_progress.save_failed(tx, part, attempt)


def cancelled_error(operation_id: str) -> Cancelled:
    return Cancelled(f"operation {operation_id} was cancelled")


def as_ours(error: Exception) -> StrandlineError:
    return error if isinstance(error, StrandlineError) else Internal(f"{type(error).__name__}: {error}")
