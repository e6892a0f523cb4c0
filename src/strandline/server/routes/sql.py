"""``/v1/sql``, and reads of rows of one table: as JSON or as an Arrow stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from strandline import names
from strandline.errors import Unsupported
from strandline.json_values import plain
from strandline.server.auth import CurrentPrincipal
from strandline.server.errors import ALL
from strandline.server.models import Text, Whole
from strandline.server.select import (
    ResultLimits,
    Rows,
    calls_function,
    read_rows,
    refuse_variables,
    run_query,
)
from strandline.server.service import database_of, service_of

if TYPE_CHECKING:
    pass

router = APIRouter(prefix="/v1", tags=["sql"])

ARROW_TYPE = "application/vnd.apache.arrow.stream"
TRUNCATED = "Strandline-Truncated"
"""Header of an Arrow stream: ``true`` if the result has more rows."""
_FORMATS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The rows, as JSON, or as an Arrow stream if the request accepts only that.",
        "content": {ARROW_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}

Value = Text | Whole | float | bool | None
MaxRows = Annotated[int | None, Field(ge=1, le=2**31, description="Maximum number of rows to return.")]
Seconds = Annotated[float | None, Field(gt=0, le=86400, description="Maximum time for the query.")]


class ReadRequest(BaseModel):
    """What all requests of rows have."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    max_rows: MaxRows = None
    seconds: Seconds = None


class SqlRequest(ReadRequest):
    """A query."""

    sql: Text = Field(description="One SELECT.")
    params: list[Value] | dict[Text, Value] | None = Field(
        None, description="Values of parameters: a list for `?`, an object for `:name`."
    )


class RowsRequest(ReadRequest):
    """Which rows of a table to read."""

    path: Text
    columns: list[Text] | None = Field(None, description="Names of columns (default: all).")
    where: Text | None = Field(None, description="A SQL condition without functions.")
    at: Whole | Text | None = Field(None, description="A step, or a time as ISO text (default: now).")
    view: Text | None = Field(None, description="The name of an index to read through.")
    params: list[Value] | dict[Text, Value] | None = Field(None, description="Values of parameters.")


class RowRequest(BaseModel):
    """Which row of a table to read."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    path: Text
    key: list[Value] = Field(description="The values of the primary key, in order.")


class RowResponse(BaseModel):
    """A row. None: the table has no row with the key."""

    row: dict[str, Any] | None


class ResultColumn(BaseModel):
    """A column of a result, with its Arrow type."""

    name: str
    type: str


class SqlResponse(BaseModel):
    """Rows. ``truncated``: the result has more rows than the limits allow."""

    columns: list[ResultColumn]
    rows: list[list[Any]]
    truncated: bool


@router.post("/sql", operation_id="Database.sql", response_model=SqlResponse, responses=ALL | _FORMATS)
async def sql(request: Request, wanted: SqlRequest, principal: CurrentPrincipal) -> Response:
    """Run one SELECT. Role: read.

    Whole numbers are JSON numbers of any size. Decimals with a fraction and times are text, bytes base64.
    """
    db = database_of(request)

    def run(limits: ResultLimits) -> Rows:
        return read_rows(run_query(db, principal, wanted.sql, wanted.params), limits)

    return await _read(request, wanted, run)


@router.post("/tables/rows", operation_id="Table.scan", response_model=SqlResponse, responses=ALL | _FORMATS)
async def rows(request: Request, wanted: RowsRequest, principal: CurrentPrincipal) -> Response:
    """Read columns and rows of one table, in no particular order. Role: read."""
    db = database_of(request)

    def run(limits: ResultLimits) -> Rows:
        principal.require_paths([names.normalize(wanted.path)])
        refuse_variables(wanted.where or "")
        if wanted.where is not None and calls_function(wanted.where):
            raise Unsupported("the condition of a scan has no functions here", "Use POST /v1/sql.")
        found = db.table(wanted.path).scan(
            wanted.columns, wanted.where, at=wanted.at, view=wanted.view, params=wanted.params
        )
        return read_rows(found, limits)

    return await _read(request, wanted, run)


@router.post("/tables/row", operation_id="Table.get", response_model=RowResponse, responses=ALL)
async def row(request: Request, wanted: RowRequest, principal: CurrentPrincipal) -> Response:
    """Read the row with a key. Role: read."""
    service, db = service_of(request), database_of(request)

    def run() -> dict[str, Any] | None:
        principal.require_paths([names.normalize(wanted.path)])
        return db.table(wanted.path).get(*wanted.key)

    found = await service.run(run, service.settings.sql_seconds)
    return JSONResponse({"row": plain(found)})


async def _read(request: Request, wanted: ReadRequest, run: Callable[[ResultLimits], Rows]) -> Response:
    service = service_of(request)
    settings = service.settings
    limits = ResultLimits(min(wanted.max_rows or settings.sql_rows, settings.sql_rows), settings.sql_bytes)
    seconds = min(wanted.seconds or settings.sql_seconds, settings.sql_seconds)
    if ARROW_TYPE not in request.headers.get("accept", ""):
        return JSONResponse(await service.run(lambda: run(limits).to_json(), seconds))

    def ipc() -> tuple[bytes, bool]:
        found = run(limits)
        return found.to_ipc(), found.truncated

    body, truncated = await service.run(ipc, seconds)
    return Response(body, media_type=ARROW_TYPE, headers={TRUNCATED: str(truncated).lower()})
