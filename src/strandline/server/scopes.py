"""Decide what a token that is limited to path prefixes may do with a verb. Everything else is denied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from strandline import names
from strandline.api.backup_info import CollectionInfo
from strandline.api.progress import OperationInfo
from strandline.api.schedules import ScheduleInfo
from strandline.api.verbs import Scope, Verb
from strandline.errors import PathNotFound, PermissionDenied, StrandlineError
from strandline.server.auth import Principal

if TYPE_CHECKING:
    from strandline.api import Database


def authorize(db: Database, principal: Principal, verb: Verb, arguments: Mapping[str, Any]) -> None:
    """Raise PERMISSION_DENIED unless the client may make this call."""
    principal.require(verb.role)
    if principal.prefixes is not None:
        _CHECKS[verb.scope](db, principal, arguments)


def narrow(db: Database, principal: Principal, verb: Verb, arguments: Mapping[str, Any], result: Any) -> Any:
    """Return the entries of a list that the client may see; any other result as it is."""
    if principal.prefixes is None or verb.scope != "list":
        return result
    if isinstance(result, dict):  # names directly below a path
        above = names.normalize(arguments.get("path") or "/").rstrip("/")
        return {name: found for name, found in result.items() if principal.may_see(f"{above}/{name}")}
    return [each for each in result if _may_see(db, principal, each)]


def may_use_collection(db: Database, principal: Principal, name: str) -> bool:
    """Return whether a client may use a collection: it may use all of its tables."""
    if principal.prefixes is None:
        return True
    try:
        tables = db.collection(name).info().tables
    except StrandlineError:
        return False
    return bool(tables) and all(map(principal.may_use, tables or ()))


def may_use_operation(db: Database, principal: Principal, info: OperationInfo) -> bool:
    """Return whether a client may see an operation: that of a collection that it may use."""
    if principal.prefixes is None:
        return True
    collection = info.request.get("collection")
    return isinstance(collection, str) and may_use_collection(db, principal, collection)


def require_collection(db: Database, principal: Principal, name: str) -> None:
    """Raise PERMISSION_DENIED unless the client may use a collection."""
    if not may_use_collection(db, principal, name):
        raise PermissionDenied(f"the token does not allow the backup collection {name!r}")


def _may_see(db: Database, principal: Principal, entry: Any) -> bool:
    if isinstance(entry, OperationInfo):
        return may_use_operation(db, principal, entry)
    if isinstance(entry, CollectionInfo):
        return may_use_collection(db, principal, entry.name)
    if isinstance(entry, ScheduleInfo):
        return may_use_collection(db, principal, entry.collection)
    path = entry["path"] if isinstance(entry, dict) else entry.path
    return principal.may_see(path)


def _all(db: Database, principal: Principal, arguments: Mapping[str, Any]) -> None:
    principal.require_all_paths()


def _path(db: Database, principal: Principal, arguments: Mapping[str, Any]) -> None:
    principal.require_paths([names.normalize(arguments["path"])])


def _list(db: Database, principal: Principal, arguments: Mapping[str, Any]) -> None:
    path = names.normalize(arguments.get("path") or "/")
    if not principal.may_see(path):
        raise PermissionDenied(f"the token does not allow the path {path}")


def _collection(db: Database, principal: Principal, arguments: Mapping[str, Any]) -> None:
    require_collection(db, principal, arguments["collection"])


def _restore(db: Database, principal: Principal, arguments: Mapping[str, Any]) -> None:
    """Check the tables of the backup, which are not always those of the collection, and the targets."""
    collection = arguments["collection"]
    require_collection(db, principal, collection)
    plan = db.collection(collection).plan_restore(
        at=arguments.get("at"),
        tables=arguments.get("tables"),
        into=arguments.get("into"),
        replace=bool(arguments.get("replace")),
    )
    principal.require_paths([path for table in plan.tables for path in (table.source, table.path)])


def _schedule(db: Database, principal: Principal, arguments: Mapping[str, Any]) -> None:
    try:
        info = db.schedule(arguments["schedule"]).info()
    except PathNotFound:
        raise PermissionDenied(f"the token does not allow the schedule {arguments['schedule']!r}") from None
    require_collection(db, principal, info.collection)


def _operation(db: Database, principal: Principal, arguments: Mapping[str, Any]) -> None:
    operation_id = arguments["operation_id"]
    if not may_use_operation(db, principal, db.operation(operation_id)):
        raise PermissionDenied(f"the token does not allow the operation {operation_id!r}")


_CHECKS: Mapping[Scope, Callable[[Database, Principal, Mapping[str, Any]], None]] = {
    "all": _all,
    "path": _path,
    "list": _list,
    "collection": _collection,
    "restore": _restore,
    "schedule": _schedule,
    "operation": _operation,
    "any": lambda db, principal, arguments: None,
}
