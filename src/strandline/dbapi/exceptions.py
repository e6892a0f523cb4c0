"""PEP 249's exceptions, and which of them an error of ours is."""

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
    "translated",
]


class Warning(Exception):
    """Something important that is no error. There is none so far."""


class Error(Exception):
    """What all errors have in common. ``code`` and ``hint`` are those of the error that it stands for."""

    def __init__(self, message: str, code: str = "", hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


class InterfaceError(Error):
    """The interface was used in a wrong way, such as a cursor that is closed."""


class DatabaseError(Error):
    """The database has refused something, or failed."""


class DataError(DatabaseError):
    """A value does not fit."""


class OperationalError(DatabaseError):
    """Nothing is wrong with the statement: try again, or look at what is not available."""


class IntegrityError(DatabaseError):
    """A key is there already."""


class InternalError(DatabaseError):
    """A mistake of the database itself, or damage."""


class ProgrammingError(DatabaseError):
    """The statement is wrong, or about something that is not there."""


class NotSupportedError(DatabaseError):
    """There is no such thing here."""


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
"""All others are OperationalError."""


@contextmanager
def translated(*, changing: bool = False) -> Iterator[None]:
    """Errors of ours leave the block as PEP 249's. ``changing``: rows are changed, so that what is not as it
    should be is a key."""
    try:
        yield
    except StrandlineError as error:
        kind = _BY_CODE.get(error.code, OperationalError)
        if changing and error.code == "PRECONDITION_FAILED":
            kind = IntegrityError
        raise kind(str(error), error.code, error.hint) from error
