"""All errors of Strandline.

An error has one plain sentence, a stable ``code`` for programs, a ``hint`` that says what to do, and an
``exit_code`` for the command line. The class docstring says when it is raised; the reference page of errors
is generated from it.
"""

from __future__ import annotations

import re
from typing import ClassVar, TypeVar

__all__ = [
    "AlreadyExists",
    "Cancelled",
    "Conflict",
    "Corrupted",
    "Internal",
    "InvalidArgument",
    "OperationNotFound",
    "PathNotFound",
    "PermissionDenied",
    "PreconditionFailed",
    "SchemaMismatch",
    "StrandlineError",
    "SyntaxFault",
    "TimedOut",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
    "UnderOperation",
    "Unsupported",
]

_SECRETS = (
    (re.compile(r"(?i)\b((?:https?|s3a?|gs)://)[^/?#\s\"'<>]*@"), r"\1***@"),
    (re.compile(r"(://[^/@:\s]*):[^/@\s]+@"), r"\1:***@"),
    (re.compile(r"(?i)(\bhttps?://[^\s?#\"'<>]*)[?#][^\s\"'<>]*[^\s\"'<>,.:;)\]]"), r"\1?***"),
    (re.compile(r"(\b\w+://[^\s?#\"'<>]*)[?#][^\s\"'<>=]*=[^\s\"'<>]*[^\s\"'<>,.:;)\]]"), r"\1?***"),
    (
        re.compile(r"(?i)\b(sig|(?:x-(?:amz|goog)-)?(?:signature|credential|security-token))=[^&\s\"']+"),
        r"\1=***",
    ),
)
"""Patterns of users, passwords and query strings in URLs, each with the text that replaces them.

A query string is masked as a whole: the server decides which parameters are secret, and a signature is as
good as a password.
"""


def mask_urls(text: str) -> str:
    """Remove the secrets of URLs from a text. Every error, log line and metric passes through this."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


E = TypeVar("E", bound="StrandlineError")

UNDONE = "undone"
"""Outcome: the operation has ended, and its changes are removed."""
BEING_UNDONE = "being undone"
"""Outcome: the operation will be undone; none of its effects become visible."""
GOES_ON = "goes on"
"""Outcome: the operation continues, in this process or in another one."""
HAPPENED = "done"
"""Outcome: the operation is done. A later step failed."""
UNKNOWN = "unknown"
"""Outcome: the catalog could not be reached to find out whether the operation took place."""


class StrandlineError(Exception):
    """The base of every error that reaches a caller."""

    code: ClassVar[str] = "ERROR"
    exit_code: ClassVar[int] = 1
    default_hint: ClassVar[str] = "Run with --debug for details, and report it if the cause is not clear."

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message = mask_urls(message)
        self.hint = mask_urls(hint or self.default_hint)
        super().__init__(self.message)
        self.operation: str | None = None
        """The id of the operation that the failed request started or waited for, if any."""
        self.outcome: str | None = None
        """The outcome of ``operation``: UNDONE, BEING_UNDONE, GOES_ON, HAPPENED or UNKNOWN."""

    def about(self: E, operation: str, outcome: str, advice: str | None = None) -> E:
        """Set the operation and its outcome; add ``advice`` to the hint. Return this error."""
        self.operation, self.outcome = operation, outcome
        if advice is not None:
            self.hint = f"{self.hint} {advice}"
        return self

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]\n  hint: {self.hint}"


class PathNotFound(StrandlineError):
    """A path that the request names does not exist."""

    code = "PATH_NOT_FOUND"
    exit_code = 3
    default_hint = "List what exists with db.ls('/') or SHOW TABLES; names are case-sensitive."


class AlreadyExists(StrandlineError):
    """A path that the request would create already exists."""

    code = "ALREADY_EXISTS"
    exit_code = 4
    default_hint = "Choose another name, or drop the existing path first."


class UnderOperation(StrandlineError):
    """Another operation works on a path that the request needs."""

    code = "UNDER_OPERATION"
    exit_code = 5
    default_hint = "Wait for that operation with db.wait(id), or cancel it with db.cancel(id)."

    def __init__(self, message: str, hint: str | None = None, operation_id: str | None = None) -> None:
        super().__init__(message, hint)
        self.operation_id = operation_id
        """The id of the other operation, if it belongs to this warehouse."""


class PreconditionFailed(StrandlineError):
    """The request is well formed, but the present state does not allow it."""

    code = "PRECONDITION_FAILED"
    exit_code = 6
    default_hint = "Bring the database into the state that the request needs, then repeat it."


class InvalidArgument(StrandlineError):
    """A name, a value, a type or a setting is not acceptable."""

    code = "INVALID_ARGUMENT"
    exit_code = 7
    default_hint = "Correct the value and repeat the request."


class SyntaxFault(StrandlineError):
    """The text is not a statement that Strandline or Spark SQL understands."""

    code = "SYNTAX_ERROR"
    exit_code = 8
    default_hint = "Compare the statement with the SQL reference."


class SchemaMismatch(StrandlineError):
    """A table and one of its indexes have schema versions that do not fit, even after retries."""

    code = "SCHEMA_MISMATCH"
    exit_code = 9
    default_hint = "Repeat the request; if it persists, describe both paths and compare their versions."


class Conflict(StrandlineError):
    """Concurrent writers kept changing the same rows, and the retries are used up."""

    code = "CONFLICT"
    exit_code = 10
    default_hint = "Repeat the statement; if it happens often, write in fewer, larger transactions."


class Corrupted(StrandlineError):
    """Stored data does not match what was recorded about it."""

    code = "CORRUPTED"
    exit_code = 11
    default_hint = (
        "Of a table: run db.check(path) for details, and restore it from a backup. Of a backup: VERIFY its "
        "collection, then REPAIR it."
    )


class OperationNotFound(StrandlineError):
    """No operation has this id (or it was forgotten)."""

    code = "OPERATION_NOT_FOUND"
    exit_code = 12
    default_hint = "List the known operations with db.operations()."


class Cancelled(StrandlineError):
    """The operation was cancelled, and its changes are undone."""

    code = "CANCELLED"
    exit_code = 13
    default_hint = "Start it again when you are ready."


class TimedOut(StrandlineError):
    """A request or an operation did not finish within its time limit."""

    code = "TIMEOUT"
    exit_code = 14
    default_hint = "Repeat the request, or allow more time."


class Unavailable(StrandlineError):
    """The warehouse, the catalog or Spark cannot be reached or used."""

    code = "UNAVAILABLE"
    exit_code = 15
    default_hint = "Check the address, the rights and the free space, then try again."


class Unsupported(StrandlineError):
    """The request is understood, but Strandline does not do this."""

    code = "UNSUPPORTED"
    exit_code = 16
    default_hint = "See the limits in the reference for another way."


class Unauthenticated(StrandlineError):
    """A request to the service has no valid token or session."""

    code = "UNAUTHENTICATED"
    exit_code = 17
    default_hint = "Send a token (Authorization: Bearer TOKEN); strandline token create creates one."


class PermissionDenied(StrandlineError):
    """The role or the paths of a token do not allow the request to the service."""

    code = "PERMISSION_DENIED"
    exit_code = 18
    default_hint = "Use a token whose role and paths allow the request; strandline token list shows them."


class TooManyRequests(StrandlineError):
    """A token, or an address with failed logins, exceeds the rate limit of the service."""

    code = "TOO_MANY_REQUESTS"
    exit_code = 19
    default_hint = "Wait for the number of seconds in the header Retry-After, then repeat the request."
    seconds: int = 1
    """Number of seconds until a request is accepted again."""


class Internal(StrandlineError):
    """A defect in Strandline: an invariant that should always hold did not."""

    code = "INTERNAL"
    exit_code = 70
    default_hint = "Please report it with the statement that caused it."


PYTHON_HINT = (
    "Name a Python that has what Strandline depends on in PYSPARK_PYTHON, before Spark starts; in a "
    "notebook: os.environ['PYSPARK_PYTHON'] = sys.executable. A Spark Connect server has it in its own "
    "environment."
)
"""Hint for an error: Spark runs a Python that cannot import this package."""

BY_CODE = {kind.code: kind for kind in StrandlineError.__subclasses__()}
"""Error classes by code, for errors that arrive as text from an executor or the catalog."""
