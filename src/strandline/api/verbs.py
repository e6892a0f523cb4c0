"""The methods of the Python API that the service offers, with their routes.

The service makes its routes from this table, and ``RemoteDatabase`` its requests. Parameters, their types and
the types of results are those of the methods.

These are not offered: methods that take or return DataFrames and Arrow data, ``Database.files`` (its result
is for processes that read the files of the warehouse), change streams, and ``transaction``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
_NEVER = frozenset(
    {"self", "db", "wait", "timeout", "on_progress", "on_run", "on_error", "stop", "pack", "by"}
)
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
        result: the type of the response if it is not that of the method: a module and a name.
    """

    name: str
    method: str
    path: str
    role: Role = "read"
    scope: Scope = "all"
    starts: bool = False
    calls: str | None = None
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
            if each.name not in _NEVER
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

    Names that their module imports for type checkers only are looked up in ``_TYPES``.
    """
    known: dict[str, Any] = dict.fromkeys(("Params", "SparkSession", "DataFrame", "Connection"), Any)
    for module in _TYPES:
        known |= vars(import_module(f"strandline.{module}"))
    return get_type_hints(of, known | vars(sys.modules[of.__module__]))


_TYPES = (
    *("alarms.board", "catalog.alarms"),
    *("api.access", "api.backup_info", "api.collection", "api.create_table", "api.export", "api.load"),
    *("api.database", "api.progress", "api.schedules", "api.status", "api.table", "api.open_backup"),
    *(
        "backups.verify.verify",
        "catalog.owners",
        "backups.collection_ddl",
        "backups.restore.restore",
        "backups.retention.retention",
    ),
    *("catalog.access", "catalog.commit_history", "catalog.history", "catalog.part_progress"),
    *("sql.retention_rules", "storage.external.source", "storage.outgoing", "tables.check"),
    "tables.housekeeping",
)
"""Modules with types that signatures of the Python API name."""
_C, _S, _O = "/collections/{collection}", "/schedules/{schedule}", "/operations/{operation_id}"
_INFO = "api.backup_info:CollectionInfo"


def _verb(name: str, method: str, path: str, role: Role = "read", scope: Scope = "all", **more: Any) -> Verb:
    return Verb(name=name, method=method, path=path, role=role, scope=scope, **more)


VERBS: tuple[Verb, ...] = (
    # --- looking around
    _verb("Database.ls", "GET", "/ls", "read", "list"),
    _verb("Database.overview", "GET", "/overview", "read", "list"),
    _verb("Database.busy", "GET", "/busy", "read", "list"),
    _verb("Database.describe", "GET", "/describe", "read", "path"),
    _verb("Database.versions", "GET", "/versions", "read", "path"),
    _verb("Database.status", "GET", "/status"),
    _verb("Database.step", "GET", "/step", "read", "any", calls="api.service_calls:step"),
    # --- tables
    _verb("Table.describe", "GET", "/tables/describe", "read", "path"),
    _verb("Table.segments", "GET", "/tables/segments", "read", "path"),
    _verb("Table.history", "GET", "/tables/history", "read", "path"),
    _verb("Database.check", "POST", "/tables/check", "operate", "path"),
    _verb("Database.compact", "POST", "/tables/compact", "operate", "path"),
    _verb("Database.load", "POST", "/tables/load", "admin"),
    _verb("Database.export", "POST", "/tables/export", "admin"),
    # --- collections and backups
    _verb("Database.collections", "GET", "/collections", "read", "list", result=f"list[{_INFO}]"),
    _verb("Database.create_collection", "POST", "/collections", "admin", result=_INFO),
    _verb("Database.attach", "POST", "/attach", "admin", result=_INFO),
    _verb("Collection.info", "GET", _C, "read", "collection"),
    _verb("Collection.drop", "DELETE", _C, "admin", starts=True, calls="api.background:drop"),
    _verb("Collection.backups", "GET", f"{_C}/backups", "read", "collection"),
    _verb("Collection.backup_info", "GET", f"{_C}/backups/{{name}}", "read", "collection"),
    _verb("Collection.backup", "POST", f"{_C}/backups", "operate", "collection", starts=True),
    _verb(
        "Collection.drop_backup",
        "DELETE",
        f"{_C}/backups/{{name}}",
        "operate",
        "collection",
        starts=True,
        calls="api.background:drop_backup",
    ),
    _verb("Collection.pin", "PUT", f"{_C}/backups/{{name}}/pin", "operate", "collection"),
    _verb("Collection.unpin", "DELETE", f"{_C}/backups/{{name}}/pin", "operate", "collection"),
    _verb("Collection.plan_restore", "POST", f"{_C}/plan_restore", "read", "restore"),
    _verb("Collection.restore", "POST", f"{_C}/restore", "operate", "restore", starts=True),
    _verb(
        "Collection.verify",
        "POST",
        f"{_C}/verify",
        "operate",
        "collection",
        starts=True,
        calls="api.background:verify",
    ),
    _verb("Database.verified", "GET", f"{_C}/verified", "read", "collection"),
    _verb(
        "Collection.drill",
        "POST",
        f"{_C}/drill",
        "operate",
        "collection",
        starts=True,
        calls="api.background:drill",
    ),
    _verb("Collection.repair", "POST", f"{_C}/repair", "admin", starts=True, calls="api.background:repair"),
    _verb(
        "Collection.preview_prune",
        "GET",
        f"{_C}/prune",
        "read",
        "collection",
        calls="api.service_calls:preview_prune",
    ),
    _verb(
        "Collection.prune",
        "POST",
        f"{_C}/prune",
        "operate",
        "collection",
        starts=True,
        calls="api.background:prune",
    ),
    _verb("Collection.compact", "POST", f"{_C}/compact", "operate", "collection", starts=True),
    _verb(
        "Collection.merge_increments", "POST", f"{_C}/merge_increments", "operate", "collection", starts=True
    ),
    _verb("Collection.copy_to", "POST", f"{_C}/copy_to", "admin", starts=True),
    # --- schedules
    _verb("Database.schedules", "GET", "/schedules", "read", "list"),
    _verb(
        "Database.create_schedule",
        "POST",
        "/schedules",
        "operate",
        "collection",
        result="api.schedules:ScheduleInfo",
    ),
    _verb("Schedule.info", "GET", _S, "read", "schedule"),
    _verb("Schedule.alter", "PATCH", _S, "operate", "schedule", calls="api.service_calls:alter_schedule"),
    _verb("Schedule.drop", "DELETE", _S, "operate", "schedule"),
    _verb("Schedule.pause", "POST", f"{_S}/pause", "operate", "schedule"),
    _verb("Schedule.resume", "POST", f"{_S}/resume", "operate", "schedule"),
    _verb("Schedule.runs", "GET", f"{_S}/runs", "read", "schedule"),
    _verb("Database.run_due", "POST", "/run_due", "operate"),
    # --- operations
    _verb("Database.operations", "GET", "/operations", "read", "list"),
    _verb("Database.resume", "POST", "/operations/resume", "operate"),
    _verb(
        "Database.forget_failed",
        "POST",
        "/operations/forget_failed",
        "operate",
        calls="api.service_calls:forget_failed",
    ),
    _verb("Database.operation", "GET", _O, "read", "operation"),
    _verb("Database.cancel", "POST", f"{_O}/cancel", "operate", "operation"),
    _verb("Database.forget", "DELETE", _O, "operate", "operation", calls="api.service_calls:forget"),
    _verb("Database.shards", "GET", f"{_O}/shards", "read", "operation", calls="api.service_calls:shards"),
    _verb("Database.stages", "GET", f"{_O}/stages", "read", "operation", calls="api.service_calls:stages"),
    # --- care
    _verb("Database.maintain", "POST", "/maintain", "operate"),
    _verb("Database.collect", "POST", "/collect", "operate"),
    _verb("Database.pins", "GET", "/pins"),
    _verb("Database.pin", "POST", "/pins", "operate"),
    _verb("Database.unpin", "DELETE", "/pins/{name}", "operate"),
    # --- alarms
    _verb("Database.alarms", "GET", "/alarms"),
    _verb("Database.acknowledge_alarm", "POST", "/alarms/acknowledge", "operate"),
    _verb("Database.check_alarms", "POST", "/alarms/check", "operate"),
    _verb("Database.test_alarm_channel", "POST", "/alarm_channels/{name}/test", "admin"),
    # --- access
    _verb("Database.tokens", "GET", "/tokens", "admin"),
    _verb("Database.create_token", "POST", "/tokens", "admin"),
    _verb("Database.revoke_token", "DELETE", "/tokens/{token_id}", "admin"),
    _verb("Database.audit", "GET", "/audit", "admin"),
)
BY_NAME: Mapping[str, Verb] = {verb.name: verb for verb in VERBS}
