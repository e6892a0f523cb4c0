"""The methods of the Python API that the service offers, with their routes.

The service makes its routes from this table, and ``RemoteDatabase`` its requests. Parameters, their types and
the types of results are those of the methods.

These are not offered: methods that take or return DataFrames and Arrow data, ``Database.files`` (its result
is for processes that read the files of the warehouse), change streams, and ``transaction``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, Literal, TypeAlias, get_type_hints

Role: TypeAlias = Literal["read", "operate", "admin"]
Scope: TypeAlias = Literal["all", "path", "list", "collection", "restore", "schedule", "operation", "any"]
"""What a token that is limited to path prefixes may do with a verb:

- all: nothing, because the verb concerns the whole warehouse;
- path: use the paths that it may use;
- list: get the entries of the result that it may see;
- collection, schedule: use collections and schedules of tables that it may use;
- restore: the same, if it may also use the tables of the backup and the targets;
- operation: use operations of such collections;
- any: everything.
"""

_HANDLES = {
    "Database": "api.database",
    "Collection": "api.collection",
    "Schedule": "api.schedules",
    "Table": "api.table",
}
"""The modules of the classes whose methods are offered."""
_NEVER = frozenset({"self", "db", "wait", "timeout", "on_progress", "on_run", "on_error", "stop", "pack"})
"""Parameters that mean something in the process of the caller only."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Verb:
    """A method that the service offers.

    Attributes:
        name: the class and the method, such as ``Collection.backup``.
        method: the HTTP method.
        path: the path below ``/v1``. Parameters in braces are parameters of the method, or the name of the
            handle (``collection``, ``schedule``). All others come from the query or the body.
        starts: the call starts an operation, which is the response.
        calls: the function that is called, if it is not the method itself: a module and a name.
        fixed: arguments that clients do not give.
        result: the type of the response if it is not that of the method: a module and a name.
    """

    name: str
    method: str
    path: str
    role: Role = "read"
    scope: Scope = "all"
    starts: bool = False
    calls: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    result: str | None = None

    @property
    def handle(self) -> str:
        """The class of the handle in lower case: ``database``, ``collection``, ``schedule`` or ``table``."""
        return self.name.partition(".")[0].lower()

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The method or function. Its module is imported at the first access."""
        module, _, name = (self.calls or "").partition(":")
        if not module:
            kind, _, name = self.name.partition(".")
            return getattr(getattr(import_module(f"strandline.{_HANDLES[kind]}"), kind), name)  # type: ignore[no-any-return]
        return getattr(import_module(f"strandline.{module}"), name)  # type: ignore[no-any-return]

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The parameters that clients may give, with the types of their annotations."""
        known = type_hints(self.function)
        given = inspect.signature(self.function).parameters.values()
        found = {
            each.name: each.replace(annotation=known.get(each.name, Any))
            for each in given
            if each.name not in _NEVER and each.name not in self.fixed
        }
        if self.name.startswith(("Collection.", "Schedule.")) and self.calls is None:
            handle = inspect.Parameter(self.handle, inspect.Parameter.KEYWORD_ONLY, annotation=str)
            found = {self.handle: handle, **found}
        if self.handle == "table":
            found = {
                "path": inspect.Parameter("path", inspect.Parameter.KEYWORD_ONLY, annotation=str),
                **found,
            }
        return found

    @cached_property
    def returns(self) -> Any:
        """The type of the result."""
        if self.starts:
            return resolve("api.progress:OperationInfo")
        if self.result is not None:
            return resolve(self.result)
        return type_hints(self.function).get("return", Any)

    @property
    def changes(self) -> bool:
        """Whether the call changes something, so that it is written to the audit log."""
        return self.role != "read" and self.method != "GET"


def resolve(place: str) -> Any:
    """Return a type by its module and name, such as ``api.progress:OperationInfo`` or ``list[...]`` of it."""
    if place.startswith("list["):
        return list[resolve(place[5:-1])]  # type: ignore[misc]
    module, _, name = place.partition(":")
    return getattr(import_module(f"strandline.{module}"), name)


def type_hints(of: Any) -> dict[str, Any]:
    """Return the types of a function's parameters and result, or of a class's fields.

    Names that a module imports for type checkers only are looked up among the public names.
    """
    import strandline
    from strandline.api.export import ExportFormat
    from strandline.api.load import LoadMode
    from strandline.sql.retention_rules import Keep
    from strandline.storage.external.source import Format

    known: dict[str, Any] = {name: getattr(strandline, name) for name in strandline.__all__ if name[0] != "_"}
    known |= {"LoadMode": LoadMode, "ExportFormat": ExportFormat, "Format": Format, "Keep": Keep}
    known |= dict.fromkeys(("Params", "SparkSession", "DataFrame", "Connection"), Any)
    return get_type_hints(of, localns=known)


_C, _S, _O = "/collections/{collection}", "/schedules/{schedule}", "/operations/{operation_id}"
_INFO = "api.backup_info:CollectionInfo"
_BACKGROUND = "api.background"

VERBS: tuple[Verb, ...] = (
    # --- looking around
    Verb(name="Database.ls", method="GET", path="/ls", scope="list"),
    Verb(name="Database.overview", method="GET", path="/overview", scope="list"),
    Verb(name="Database.busy", method="GET", path="/busy", scope="list"),
    Verb(name="Database.describe", method="GET", path="/describe", scope="path"),
    Verb(name="Database.versions", method="GET", path="/versions", scope="path"),
    Verb(name="Database.status", method="GET", path="/status"),
    Verb(name="Database.step", method="GET", path="/step", scope="any", calls="api.service_calls:step"),
    # --- tables
    Verb(name="Table.describe", method="GET", path="/tables/describe", scope="path"),
    Verb(name="Table.history", method="GET", path="/tables/history", scope="path"),
    Verb(name="Database.check", method="POST", path="/tables/check", role="operate", scope="path"),
    Verb(name="Database.compact", method="POST", path="/tables/compact", role="operate", scope="path"),
    Verb(name="Database.load", method="POST", path="/tables/load", role="admin"),
    Verb(name="Database.export", method="POST", path="/tables/export", role="admin"),
    # --- collections and backups
    Verb(
        name="Database.collections", method="GET", path="/collections", scope="list", result=f"list[{_INFO}]"
    ),
    Verb(name="Database.create_collection", method="POST", path="/collections", role="admin", result=_INFO),
    Verb(name="Database.attach", method="POST", path="/attach", role="admin", result=_INFO),
    Verb(name="Collection.info", method="GET", path=_C, scope="collection"),
    Verb(
        name="Collection.drop",
        method="DELETE",
        path=_C,
        role="admin",
        starts=True,
        calls=f"{_BACKGROUND}:drop",
    ),
    Verb(name="Collection.backups", method="GET", path=f"{_C}/backups", scope="collection"),
    Verb(name="Collection.backup_info", method="GET", path=f"{_C}/backups/{{name}}", scope="collection"),
    Verb(
        name="Collection.backup",
        method="POST",
        path=f"{_C}/backups",
        role="operate",
        scope="collection",
        starts=True,
    ),
    Verb(
        name="Collection.drop_backup",
        method="DELETE",
        path=f"{_C}/backups/{{name}}",
        role="operate",
        scope="collection",
        starts=True,
        calls=f"{_BACKGROUND}:drop_backup",
    ),
    Verb(
        name="Collection.pin",
        method="PUT",
        path=f"{_C}/backups/{{name}}/pin",
        role="operate",
        scope="collection",
    ),
    Verb(
        name="Collection.unpin",
        method="DELETE",
        path=f"{_C}/backups/{{name}}/pin",
        role="operate",
        scope="collection",
    ),
    Verb(name="Collection.plan_restore", method="POST", path=f"{_C}/plan_restore", scope="restore"),
    Verb(
        name="Collection.restore",
        method="POST",
        path=f"{_C}/restore",
        role="operate",
        scope="restore",
        starts=True,
    ),
    Verb(
        name="Collection.verify",
        method="POST",
        path=f"{_C}/verify",
        role="operate",
        scope="collection",
        starts=True,
        calls=f"{_BACKGROUND}:verify",
    ),
    Verb(name="Database.verified", method="GET", path=f"{_C}/verified", scope="collection"),
    Verb(
        name="Collection.drill",
        method="POST",
        path=f"{_C}/drill",
        role="operate",
        scope="collection",
        starts=True,
        calls=f"{_BACKGROUND}:drill",
    ),
    Verb(
        name="Collection.repair",
        method="POST",
        path=f"{_C}/repair",
        role="admin",
        starts=True,
        calls=f"{_BACKGROUND}:repair",
    ),
    Verb(
        name="Collection.preview_prune",
        method="GET",
        path=f"{_C}/prune",
        scope="collection",
        calls="api.service_calls:preview_prune",
    ),
    Verb(
        name="Collection.prune",
        method="POST",
        path=f"{_C}/prune",
        role="operate",
        scope="collection",
        starts=True,
        calls=f"{_BACKGROUND}:prune",
    ),
    Verb(
        name="Collection.compact",
        method="POST",
        path=f"{_C}/compact",
        role="operate",
        scope="collection",
        starts=True,
    ),
    Verb(
        name="Collection.merge_increments",
        method="POST",
        path=f"{_C}/merge_increments",
        role="operate",
        scope="collection",
        starts=True,
    ),
    Verb(name="Collection.copy_to", method="POST", path=f"{_C}/copy_to", role="admin", starts=True),
    # --- schedules
    Verb(name="Database.schedules", method="GET", path="/schedules", scope="list"),
    Verb(
        name="Database.create_schedule",
        method="POST",
        path="/schedules",
        role="operate",
        scope="collection",
        result="api.schedules:ScheduleInfo",
    ),
    Verb(name="Schedule.info", method="GET", path=_S, scope="schedule"),
    Verb(
        name="Schedule.alter",
        method="PATCH",
        path=_S,
        role="operate",
        scope="schedule",
        calls="api.service_calls:alter_schedule",
    ),
    Verb(name="Schedule.drop", method="DELETE", path=_S, role="operate", scope="schedule"),
    Verb(name="Schedule.pause", method="POST", path=f"{_S}/pause", role="operate", scope="schedule"),
    Verb(name="Schedule.resume", method="POST", path=f"{_S}/resume", role="operate", scope="schedule"),
    Verb(name="Schedule.runs", method="GET", path=f"{_S}/runs", scope="schedule"),
    Verb(name="Database.run_due", method="POST", path="/run_due", role="operate"),
    # --- operations
    Verb(name="Database.operations", method="GET", path="/operations", scope="list"),
    Verb(name="Database.resume", method="POST", path="/operations/resume", role="operate"),
    Verb(
        name="Database.forget_failed",
        method="POST",
        path="/operations/forget_failed",
        role="operate",
        calls="api.service_calls:forget_failed",
    ),
    Verb(name="Database.operation", method="GET", path=_O, scope="operation"),
    Verb(name="Database.cancel", method="POST", path=f"{_O}/cancel", role="operate", scope="operation"),
    Verb(
        name="Database.forget",
        method="DELETE",
        path=_O,
        role="operate",
        scope="operation",
        calls="api.service_calls:forget",
    ),
    Verb(
        name="Database.shards",
        method="GET",
        path=f"{_O}/shards",
        scope="operation",
        calls="api.service_calls:shards",
    ),
    Verb(
        name="Database.stages",
        method="GET",
        path=f"{_O}/stages",
        scope="operation",
        calls="api.service_calls:stages",
    ),
    # --- care
    Verb(name="Database.maintain", method="POST", path="/maintain", role="operate"),
    Verb(name="Database.collect", method="POST", path="/collect", role="operate"),
    Verb(name="Database.pins", method="GET", path="/pins"),
    Verb(name="Database.pin", method="POST", path="/pins", role="operate"),
    Verb(name="Database.unpin", method="DELETE", path="/pins/{name}", role="operate"),
    # --- access
    Verb(name="Database.tokens", method="GET", path="/tokens", role="admin"),
    Verb(name="Database.create_token", method="POST", path="/tokens", role="admin"),
    Verb(name="Database.revoke_token", method="DELETE", path="/tokens/{token_id}", role="admin"),
    Verb(name="Database.audit", method="GET", path="/audit", role="admin"),
)
BY_NAME: Mapping[str, Verb] = {verb.name: verb for verb in VERBS}
