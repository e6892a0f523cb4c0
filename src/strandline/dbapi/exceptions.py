"""The exceptions of PEP 249, and their mapping from Strandline's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from strandline.errors import StrandlineError

__all__ = [
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Warning",
    "translate_errors",
]


class Warning(Exception):
    """An important warning. Not used so far."""


class Error(Exception):
    """Base class of all errors. ``code`` and ``hint`` come from the original error."""

    def __init__(self, message: str, code: str = "", hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


class InterfaceError(Error):
    """The interface was misused, for example a closed cursor."""


class DatabaseError(Error):
    """The database refused a request, or failed."""


class DataError(DatabaseError):
    """A value is invalid for its column or parameter."""


class OperationalError(DatabaseError):
    """The statement is valid, but failed, for example because of a conflict or an unreachable catalog."""


class IntegrityError(DatabaseError):
    """A path, a primary key or a key of a unique index exists already."""


class InternalError(DatabaseError):
    """A bug of the database, or damaged data."""


class ProgrammingError(DatabaseError):
    """The statement is wrong, or names something that does not exist."""


class NotSupportedError(DatabaseError):
    """The feature is not supported."""


_BY_CODE: dict[str, type[DatabaseError]] = {
    "ALREADY_EXISTS": IntegrityError,
    "INVALID_ARGUMENT": DataError,
    "SYNTAX_ERROR": ProgrammingError,
    "PATH_NOT_FOUND": ProgrammingError,
    "PRECONDITION_FAILED": ProgrammingError,
    "OPERATION_NOT_FOUND": ProgrammingError,
    "UNSUPPORTED": NotSupportedError,
    "CORRUPTED": InternalError,
    "INTERNAL": InternalError,
}
"""Exceptions by error code; all other codes become OperationalError."""


@contextmanager
def translate_errors(*, changing: bool = False) -> Iterator[None]:
    """Translate Strandline's errors in the block to exceptions of PEP 249.

    Args:
        changing: the statement changes rows. PRECONDITION_FAILED is then about keys, and becomes
            IntegrityError.
    """
    try:
        yield
    except StrandlineError as error:
        kind = _BY_CODE.get(error.code, OperationalError)
        if changing and error.code == "PRECONDITION_FAILED":
            kind = IntegrityError
        raise kind(str(error), error.code, error.hint) from error
