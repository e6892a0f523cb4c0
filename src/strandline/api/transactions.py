"""Handlers of BEGIN, COMMIT and ROLLBACK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.api.result import Result
from strandline.sql import statements as st

if TYPE_CHECKING:
    from strandline.api.database import Database


def begin(db: Database, _: st.Begin) -> Result:
    db.begin()
    return Result()


def commit(db: Database, _: st.Commit) -> Result:
    step, rows = db.commit()
    return Result(step=step, rows_changed=rows)


def rollback(db: Database, _: st.Rollback) -> Result:
    db.rollback()
    return Result()
