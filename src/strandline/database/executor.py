"""Statements, one after the other; consecutive ones that change rows are one commit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from strandline.database import looking
from strandline.database.result import Result
from strandline.sql import statements as st
from strandline.sql.parser import parse

if TYPE_CHECKING:
    from strandline.database.database import Database


def execute(db: Database, text: str) -> Result:
    """Run all statements of a text; answers the result of the last one."""
    result = Result()
    for group in groups(parse(text)):
        result = _run(db, group)
    return result


def groups(statements: Sequence[st.Statement]) -> Iterator[list[st.Statement]]:
    """Consecutive changes are one commit, so they stay together; everything else runs by itself."""
    for changes, found in itertools.groupby(statements, key=lambda s: isinstance(s, st.Change)):
        if changes:
            yield list(found)
        else:
            yield from ([statement] for statement in found)


def _run(db: Database, group: list[st.Statement]) -> Result:
    # Each of these modules is loaded by the first statement that needs it: a look at the catalog should not wait for Arrow, nor a query
    # for the operations.
    statement = group[0]
    if isinstance(statement, looking.Look):
        return looking.look(db, statement)
    if isinstance(statement, st.Select | st.Explain | st.CheckTable | st.Change):
        from strandline.database import working

        return working.work(db, group)
    from strandline.database import defining

    return defining.define(db, statement)
