"""ALTER WAREHOUSE: change settings that are stored in the warehouse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from strandline.api.result import Result
from strandline.catalog.warehouse_settings import check_name, read_value, reset_settings, set_settings
from strandline.errors import InvalidArgument
from strandline.sql import statements as st

if TYPE_CHECKING:
    from strandline.api.database import Database


def alter(db: Database, statement: st.AlterWarehouse) -> Result:
    given: list[str] = []
    changes: list[tuple[str, float | None]] = []
    for action in statement.actions:
        if isinstance(action, st.SetSettings):
            changes += [read_value(name, value) for name, value in action.settings]
            given += [name for name, _ in action.settings]
        else:
            changes += [(check_name(name), None) for name in action.names]
            given += action.names
    _check_once(given)
    change_settings(db, changes)
    return Result()


def change_settings(db: Database, changes: Iterable[tuple[str, float | None]]) -> None:
    """Store settings of the warehouse. None removes a setting, so that its default applies.

    This works on a full disk too, because a lower value lets the garbage collector free space.
    """
    catalog = db._runtime.catalog
    with db._guard(), catalog.database.freeing_space(), catalog.write() as tx:
        for name, value in changes:
            if value is None:
                reset_settings(tx, [name])
            else:
                set_settings(tx, {name: value})


def _check_once(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"the setting {name} is named twice", "Name each setting once.")


def maintain(db: Database, statement: st.Maintain) -> Result:
    """Run housekeeping; return a row with what was done."""
    compacted = []
    if statement.compact and statement.path is not None and db.compact(statement.path):
        compacted = [statement.path]
    report = db.maintain(statement.path)
    row = (
        ", ".join(report.merged),
        ", ".join(dict.fromkeys([*compacted, *report.compacted])),
        report.removed_files,
        report.removed_orphans,
    )
    hint = (
        "this is maintain, which also runs by itself: it merges, compacts, and removes what no step within "
        "history_seconds needs"
    )
    return Result(("merged", "compacted", "removed_files", "removed_orphans"), [row], warnings=(hint,))
