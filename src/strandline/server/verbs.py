"""Run methods of the Python API for clients, and the routes that do so."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.responses import JSONResponse

from strandline.api.access import ACTOR, Actor
from strandline.api.progress import Operation
from strandline.api.verbs import BY_NAME, VERBS, Verb
from strandline.catalog import access
from strandline.errors import StrandlineError, mask_urls
from strandline.json_values import plain
from strandline.server.auth import CurrentPrincipal, Principal
from strandline.server.errors import ALL
from strandline.server.models import Text, request_model, response_model, summary_of
from strandline.server.scopes import authorize, narrow
from strandline.server.service import database_of, service_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.api import Database


async def call(request: Request, principal: Principal, name: str, /, **arguments: Any) -> Any:
    """Run a method of the Python API for a client, such as ``"Collection.backups"``; return its result.

    The role and the paths of the client are checked first. A change is written to the audit log before it
    begins, and with its result when it has ended. A method that starts an operation returns its
    ``OperationInfo`` at once.

    Args:
        request: the client's request.
        principal: the client.
        name: a name in ``api.verbs.VERBS``.
        arguments: arguments by name; ``collection``, ``schedule`` or ``path`` names the handle.
    """
    db, verb = database_of(request), BY_NAME[name]
    return await service_of(request).run(lambda: run_verb(db, principal, verb, arguments))


def run_verb(db: Database, principal: Principal, verb: Verb, arguments: Mapping[str, Any]) -> Any:
    """Run a verb in this thread, as ``call`` does."""
    if not verb.changes:
        authorize(db, principal, verb, arguments)
        return narrow(db, principal, verb, arguments, _invoke(db, verb, arguments))
    with audited(db, principal, verb.name, arguments) as note:
        authorize(db, principal, verb, arguments)
        result = _invoke(db, verb, arguments)
        if verb.starts:
            note(result.id)
        return result


@contextmanager
def audited(
    db: Database, principal: Principal, action: str, arguments: Mapping[str, Any]
) -> Iterator[Callable[[str], None]]:
    """Write a change to the audit log before it begins, and its result when it has ended.

    Yields a function that takes the id of the operation that the change has started.
    """
    catalog, operation_id, result = db._runtime.catalog, None, "INTERNAL"

    def note(started: str) -> None:
        nonlocal operation_id
        operation_id = started

    with db._guard(), catalog.database.freeing_space(), catalog.write() as tx:
        entry = access.add_audit(
            tx,
            principal=principal.name,
            token_id=principal.token_id,
            remote=principal.remote,
            action=action,
            target=_target(arguments),
            details=mask_urls(json.dumps(plain(arguments))),
        )
    before = ACTOR.set(Actor(principal.token_id, principal.name, principal.remote))
    try:
        yield note
        result = "ok"
    except StrandlineError as error:
        result = error.code
        raise
    finally:
        ACTOR.reset(before)
        with db._guard(), catalog.database.freeing_space(), catalog.write() as tx:
            access.finish_audit(tx, entry, result, operation_id)


def _target(arguments: Mapping[str, Any]) -> str:
    """Return what a change is about, for the audit log."""
    for name in ("collection", "schedule", "path", "operation_id", "token_id", "name", "url", "place"):
        if isinstance(arguments.get(name), str):
            return mask_urls(arguments[name])
    return ""


def _invoke(db: Database, verb: Verb, arguments: Mapping[str, Any]) -> Any:
    given = dict(arguments)
    if verb.calls is not None or verb.handle == "database":
        result = verb.function(db, **given)
    else:
        handle = getattr(db, verb.handle)(given.pop("path" if verb.handle == "table" else verb.handle))
        if verb.starts:
            given["wait"] = False
        result = verb.function(handle, **given)
    if verb.starts:
        return db.operation(result.id if isinstance(result, Operation) else cast(str, result))
    if verb.result is not None:
        return [each.info() for each in result] if isinstance(result, list) else result.info()
    return result


# --- routes -------------------------------------------------------------------------------------------


def verb_router() -> APIRouter:
    """Return a router with one route for each verb."""
    router = APIRouter(prefix="/v1")
    for verb in VERBS:
        summary, description = summary_of(verb)
        status = 202 if verb.starts else 200
        router.add_api_route(
            verb.path,
            _endpoint(verb),
            methods=[verb.method],
            name=verb.name,
            operation_id=verb.name,
            summary=summary,
            description=f"{description} Role: {verb.role}.".strip(),
            status_code=status,
            response_model=response_model(verb.returns),
            responses=ALL,
            tags=[verb.path.split("/")[1]],
        )
    return router


def _endpoint(verb: Verb) -> Callable[..., Any]:
    """Return the function of a route, with the signature from which FastAPI reads the request."""

    async def endpoint(**given: Any) -> JSONResponse:
        request, principal, model = given.pop("request"), given.pop("principal"), given.pop("model", None)
        if model is not None:
            given |= {name: getattr(model, name) for name in model.model_fields_set}
        result = await call(request, principal, verb.name, **given)
        return JSONResponse(plain(result), 202 if verb.starts else 200)

    def parameter(name: str, annotation: Any) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)

    parameters = [
        parameter("request", Request),
        parameter("principal", CurrentPrincipal),
        *(parameter(name, Annotated[Text, Path()]) for name in re.findall(r"{(\w+)}", verb.path)),
    ]
    model = request_model(verb)
    if model is not None:
        place = Query() if verb.method in ("GET", "DELETE") else Body()
        found = parameter("model", Annotated[model, place])
        if verb.method not in ("GET", "DELETE") and not any(
            each.is_required() for each in model.model_fields.values()
        ):
            found = found.replace(annotation=Annotated[model | None, place], default=None)
        parameters.append(found)
    endpoint.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return endpoint
