"""The end of a history: everything is completed, and the content must match the model."""

from __future__ import annotations

from sqlalchemy import select

from strandline.catalog import operations, sqltables
from strandline.errors import Corrupted, Internal
from tests import catalogs
from tests.catalogs import LEASE_SECONDS
from tests.simulation.data import model
from tests.simulation.data.actions import BIN_SECONDS, COLLECTION
from tests.simulation.data.model import BIN, INDEXES, History, State, Violation
from tests.simulation.data.processes import Intent, Process


def come_to_rest(process: Process, history: History, old_backups: set[str]) -> None:
    """Complete what dead processes left; compare tables, indexes and new backups with the model; drop all."""
    db = process.db
    process.sleep(2 * LEASE_SECONDS)
    db.resume()
    wrong = different(process, history.now)
    with db._runtime.catalog.read() as conn:
        wrong += [f"{o.kind} is {o.state}" for o in operations.unfinished_operations(conn)]
        bad = (Internal.code, Corrupted.code)
        wrong += [
            f"{o.kind}: {o.error}"
            for o in operations.list_operations(conn)
            if o.error and catalogs.kept(o.error)["code"] in bad
        ]
        # A user's stream is moved by its hold; only a backup's stays where it began.
        wrong += [
            leak for leak in catalogs.leaks(conn) if not leak.endswith("/feed has no hold at its cursor")
        ] + catalogs.disagreements(conn)
    _refuse(wrong, "at rest")
    for number, backup in enumerate(sorted(history.backups.keys() - old_backups)):
        step = history.backups[backup]
        db.sql(f"RESTORE {COLLECTION} AT '{backup}' INTO 'back{number}'")
        members = {f"/{e.name}" for e in db.ls(f"/.backups/collections/{COLLECTION}/{backup}")}
        kept = {f"/back{number}{path}": t for path, t in history.at(step).items() if path in members}
        _refuse(different(process, kept), f"restored from {backup}")
    _refuse([f"{p.path}: {p.message}" for p in db.verify(COLLECTION)], "in the collection")
    db.sql(f"DROP BACKUP COLLECTION {COLLECTION} PURGE")
    for path in live(history.now):
        process.intent = Intent(model.drop(path))
        db.sql(f"DROP TABLE `{path[1:]}` PURGE")
    db.close()


def leave_nothing(process: Process) -> None:
    """After all is dropped and no process reads, check that the catalog and the folder are empty.

    By then, what is in the bin has expired, too. Its files are kept for the grace period after that.
    """
    process.sleep(2 * LEASE_SECONDS + BIN_SECONDS)
    process.intent = Intent(live)
    process.db.collect()
    process.sleep(2 * LEASE_SECONDS)
    process.db.collect()
    context = process.db._runtime
    with context.catalog.read() as conn:
        rows = {
            table.name: len(conn.execute(select(table)).all())
            for table in (sqltables.segments, sqltables.chains, sqltables.holds, sqltables.garbage)
        }
    files = sorted(context.files.names("data"))
    _refuse(
        [f"{number} {name}" for name, number in rows.items() if number] + files,
        "after everything was dropped",
    )


def live(state: State) -> State:
    """Return the tables that are not in the bin."""
    return {path: table for path, table in state.items() if not path.startswith(BIN)}


def different(process: Process, state: State) -> list[str]:
    """Return the differences between the tables and a state of the model."""
    sql, wrong = process.db.sql, []
    for path, table in live(state).items():
        name = f"`{path[1:]}`"
        queries = [(f"SELECT * FROM {name}", model.rows_of(path))]
        for index in sorted(table.indexes):
            columns = ("k", *INDEXES[index][0], *INDEXES[index][1])
            queries.append(
                (f"SELECT {', '.join(columns)} FROM {name} VIEW {index}", model.rows_of(path, columns, index))
            )
        for text, expected in queries:
            result = sql(text)
            got = model.seen([dict(zip(result.columns, row, strict=True)) for row in result.rows()])
            if got != expected(state):
                wrong.append(f"{text}: {got} instead of {expected(state)}")
        described = process.db.describe(path)
        if {index["name"] for index in described["indexes"]} != table.indexes:
            wrong.append(f"{path} has the indexes {described['indexes']}, not {set(table.indexes)}")
        wrong += [f"{p.path}: {p.kind}, {p.message}" for p in process.db.check(path).problems]
    return wrong


def _refuse(wrong: list[str], where: str) -> None:
    if wrong:
        raise Violation(f"{where}: {'; '.join(wrong)}")
