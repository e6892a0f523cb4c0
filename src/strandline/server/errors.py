"""Turn errors into responses: JSON with code, message and hint, and an HTTP status."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from strandline.errors import Internal, InvalidArgument, StrandlineError, TooManyRequests, mask_urls
from strandline.storage.external.locations import NoFile

log = logging.getLogger("strandline")

STATUS = {
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "PATH_NOT_FOUND": 404,
    "OPERATION_NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "UNDER_OPERATION": 409,
    "PRECONDITION_FAILED": 409,
    "SCHEMA_MISMATCH": 409,
    "CONFLICT": 409,
    "CANCELLED": 409,
    "INVALID_ARGUMENT": 400,
    "SYNTAX_ERROR": 400,
    "UNSUPPORTED": 422,
    "TOO_MANY_REQUESTS": 429,
    "CORRUPTED": 500,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "TIMEOUT": 504,
}
"""HTTP status of each error code."""

_HTTP = {404: "PATH_NOT_FOUND", 405: "INVALID_ARGUMENT"}


class ErrorBody(BaseModel):
    """An error."""

    code: str
    message: str
    hint: str
    status: int
    operation: str | None = None
    outcome: str | None = None


class ErrorResponse(BaseModel):
    """The body of every response that is not a success."""

    error: ErrorBody


class BodyTooLarge(InvalidArgument):
    """The body of a request is larger than the service accepts."""


class BodyTooSlow(InvalidArgument):
    """The client did not send the body of a request in time."""


def status_of(error: StrandlineError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, BodyTooLarge):
        return 413
    if isinstance(error, BodyTooSlow):
        return 408
    if isinstance(error, NoFile):  # The client named it, so the service is not at fault.
        return 404
    return STATUS[error.code]


def respond(error: StrandlineError) -> JSONResponse:
    """Return the response for an error."""
    status = status_of(error)
    body = ErrorBody(
        code=error.code,
        message=error.message,
        hint=error.hint,
        status=status,
        operation=error.operation,
        outcome=error.outcome,
    )
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(getattr(error, "seconds", 1))
    return JSONResponse({"error": body.model_dump()}, status, headers)


def unexpected(error: BaseException) -> Internal:
    """Log an unexpected error, and return the error for the client, which has no details."""
    log.error("unexpected %s: %s", type(error).__name__, mask_urls(repr(str(error))))
    log.debug("traceback", exc_info=error)
    return Internal("the request failed unexpectedly", "The log of the service has the cause.")


def describe_statuses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a route for the OpenAPI document."""
    return {status: {"model": ErrorResponse, "description": _MEANING[status]} for status in statuses}


_MEANING = {
    400: "The request is malformed, or a value is not acceptable.",
    401: "There is no valid token or session.",
    403: "The role or the paths of the token do not allow the request.",
    404: "A path, a collection, a schedule, a token or an operation does not exist.",
    405: "The route does not have this method.",
    408: "The body was sent too slowly.",
    409: "The present state does not allow the request.",
    413: "The body is too large.",
    422: "The request is understood, but the service does not do this.",
    429: "The rate limit is exceeded; Retry-After has the number of seconds to wait.",
    500: "Stored data is damaged, or there is a defect.",
    503: "The warehouse, the catalog or Spark cannot be reached.",
    504: "The time limit is exceeded.",
}
ALL = describe_statuses(*_MEANING)
"""The error responses of every route."""


def add_error_handlers(app: FastAPI) -> None:
    """Let every error of a route become a response of this form."""

    def ours(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, StrandlineError)
        return respond(error)

    def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return respond(
            InvalidArgument(f"{where!r} is not valid: {first['msg'][:1].lower()}{first['msg'][1:]}")
        )

    def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        code = _HTTP.get(error.status_code, "INVALID_ARGUMENT")
        body = ErrorBody(
            code=code,
            message=str(error.detail)[:1].lower() + str(error.detail)[1:],
            hint="GET /v1/openapi.json lists the routes.",
            status=error.status_code,
        )
        return JSONResponse({"error": body.model_dump()}, error.status_code, error.headers)

    app.add_exception_handler(StrandlineError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
