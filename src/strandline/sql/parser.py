"""Parses a text into statements.

For any text, ``parse`` only raises these errors: SyntaxFault if it is not a statement, Unsupported for
statements of other dialects, and InvalidArgument for an invalid path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from strandline import names
from strandline.errors import SyntaxFault, Unsupported
from strandline.sql.alarms import read_acknowledge
from strandline.sql.backups import (
    read_alter_collection,
    read_attach,
    read_backup,
    read_compact,
    read_copy_backup,
    read_create_collection,
    read_repair,
    read_restore,
    read_undrop_collection,
    read_verify,
)
from strandline.sql.binding import Params, bind
from strandline.sql.changes import read_delete, read_roll_back, read_update, read_write
from strandline.sql.cursor import TokenCursor
from strandline.sql.export import read_export
from strandline.sql.keywords import OTHER_OBJECTS
from strandline.sql.merge import read_merge
from strandline.sql.query import query_of
from strandline.sql.retention import read_drop_backup, read_pin, read_prune
from strandline.sql.schedules import (
    read_alter_schedule,
    read_create_schedule,
    read_drop_schedule,
    read_pause_schedule,
)
from strandline.sql.statements import (
    Begin,
    Commit,
    Describe,
    DescribeHistory,
    DropBackupCollection,
    Explain,
    ExplainStatement,
    Restore,
    Rollback,
    RollBackTable,
    Select,
    ShowAlarms,
    ShowBackupCollections,
    ShowBackups,
    ShowBin,
    ShowCreateBackupCollection,
    ShowCreateTable,
    ShowOperation,
    ShowOperations,
    ShowScheduleRuns,
    ShowSchedules,
    ShowTables,
    ShowVersions,
    ShowWarehouse,
    Statement,
)
from strandline.sql.tables import (
    read_alter_table,
    read_check_table,
    read_create_table,
    read_drop_table,
    read_undrop_table,
)
from strandline.sql.tokens import NUMBER, Position, Token, tokenize, value
from strandline.sql.warehouse import read_alter_warehouse, read_maintain

__all__ = ["parse"]

_SHOW_FORM = (
    "SHOW TABLES [IN directory] | SHOW CREATE TABLE table | SHOW ALARMS [ALL] | SHOW BACKUP COLLECTIONS | "
    "SHOW CREATE BACKUP COLLECTION collection | SHOW BACKUPS IN collection | SHOW BIN | SHOW OPERATIONS | "
    "SHOW OPERATION 'id' [ALL] | SHOW SCHEDULES | SHOW SCHEDULE RUNS OF schedule | SHOW VERSIONS OF path | "
    "SHOW WAREHOUSE"
)
_DESCRIBE_FORM = "DESCRIBE [TABLE] table | DESCRIBE HISTORY table [LIMIT n]"
_TRANSACTION_FORM = "BEGIN [TRANSACTION] | COMMIT | ROLLBACK"
_EXPLAIN_FORM = (
    "EXPLAIN [EXTENDED | CODEGEN | COST | FORMATTED] SELECT ... | EXPLAIN UPSERT | INSERT | REPLACE | "
    "UPDATE | DELETE | MERGE | EXPORT | BACKUP | COPY BACKUP | COMPACT | PRUNE | DROP BACKUP | RESTORE ..."
)


def parse(text: str, params: Params = None) -> list[Statement]:
    """Return the statements of a text, in order, without empty ones.

    ``params`` are bound to the markers of the whole text.
    """
    statements: list[Statement] = []
    line, line_start, counted = 1, 0, 0
    found = tokenize(text)
    if params is not None or any(token.key in ("?", ":") for token in found):
        found = bind(text, found, params)
    for tokens in _split(found):
        start = tokens[0].start
        # Count lines from the last statement on, so that a text of many statements is scanned only once.
        breaks = text.count("\n", counted, start)
        if breaks:
            line, line_start = line + breaks, text.rfind("\n", counted, start) + 1
        counted = start
        position = Position(line, start - line_start + 1, start)
        statements.append(replace(_read(text, tokens), text=text[start : tokens[-1].end], position=position))
    return statements


def _split(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    found: list[Sequence[Token]] = []
    start = 0
    for place, token in enumerate(tokens):
        if token.key == ";":
            found.append(tokens[start:place])
            start = place + 1
    return [part for part in (*found, tokens[start:]) if part]


def _read(text: str, tokens: Sequence[Token]) -> Statement:
    cursor = TokenCursor(text, tokens)
    first, second = tokens[0].key, cursor.peek(1).key
    read = _READERS.get(f"{first} {second}") or _READERS.get(first)
    if read is None:
        raise _refusal(cursor)
    for place, token in enumerate(tokens):
        if token.key == "$":
            cursor.at = place
            raise _refusal(cursor)
    return read(cursor)


def _read_restore(cursor: TokenCursor) -> RollBackTable | Restore:
    # A backup collection may be named TABLE, too.
    is_table = cursor.sees("RESTORE", "TABLE") and cursor.sees_name(2)
    if is_table and cursor.peek(2).key not in ("AT", "TABLE", "INTO", "WITH", "NOWAIT"):
        return read_roll_back(cursor)
    if cursor.sees_name(1) and cursor.peek(2).key == "TO":  # Delta's RESTORE t TO VERSION AS OF n.
        return read_roll_back(cursor)
    return read_restore(cursor)


def _read_select(cursor: TokenCursor) -> Select:
    return Select(query_of(cursor.source, cursor.rest()))


def _read_explain(cursor: TokenCursor) -> Explain | ExplainStatement:
    cursor.form = _EXPLAIN_FORM
    cursor.expect("EXPLAIN")
    start = cursor.peek()
    mode = cursor.take().key if start.key in ("EXTENDED", "CODEGEN", "COST", "FORMATTED") else ""
    first, both = cursor.peek().key, f"{cursor.peek().key} {cursor.peek(1).key}"
    if first in _QUERY_STARTS:
        return Explain(query_of(cursor.source, cursor.rest()), mode)
    read = _READERS.get(both) or _READERS.get(first)
    if read is None:
        raise cursor.fault("expected a query, or a statement that can be explained")
    refusal = cursor.unsupported(f"EXPLAIN {mode} {first}" if mode else f"EXPLAIN {first}")
    if mode or not {first, both} & _EXPLAINED:
        raise refusal
    statement = read(TokenCursor(cursor.source, cursor.rest()))
    if isinstance(statement, DropBackupCollection):
        raise refusal
    return ExplainStatement(replace(statement, text=cursor.source[start.start : cursor.tokens[-1].end]))


def _read_show(cursor: TokenCursor) -> Statement:
    cursor.form = _SHOW_FORM
    cursor.expect("SHOW")
    statement: Statement
    if cursor.accept("TABLES"):
        inside = cursor.accept("IN") or cursor.accept("FROM")
        statement = ShowTables(_read_directory(cursor)) if inside else ShowTables()
    elif cursor.accept("CREATE", "TABLE"):
        statement = ShowCreateTable(cursor.path())
    elif cursor.accept("CREATE", "BACKUP", "COLLECTION"):
        statement = ShowCreateBackupCollection(cursor.collection())
    elif cursor.accept("BIN"):
        statement = ShowBin()
    elif cursor.accept("WAREHOUSE"):
        statement = ShowWarehouse()
    elif cursor.accept("BACKUP", "COLLECTIONS"):
        statement = ShowBackupCollections()
    elif cursor.accept("BACKUPS"):
        if not (cursor.accept("IN") or cursor.accept("FROM")) and cursor.done:
            raise cursor.fault("expected IN collection")
        statement = ShowBackups(cursor.collection())
    elif cursor.accept("ALARMS"):
        statement = ShowAlarms(cursor.accept("ALL"))
    elif cursor.accept("OPERATIONS"):
        statement = ShowOperations()
    elif cursor.accept("OPERATION"):
        statement = ShowOperation(cursor.string("the id of an operation"), cursor.accept("ALL"))
    elif cursor.accept("SCHEDULES"):
        statement = ShowSchedules()
    elif cursor.accept("SCHEDULE"):
        cursor.expect("RUNS", "OF")
        statement = ShowScheduleRuns(cursor.name("the name of a schedule"))
    elif cursor.accept("VERSIONS"):
        cursor.expect("OF")
        statement = ShowVersions(cursor.path("a path"))
    else:
        raise cursor.fault(
            "expected TABLES, CREATE TABLE, CREATE BACKUP COLLECTION, ALARMS, BACKUP COLLECTIONS, BACKUPS, "
            "BIN, OPERATIONS, OPERATION, SCHEDULES, SCHEDULE RUNS, VERSIONS or WAREHOUSE",
            _SHOWN_BY.get(cursor.peek().key),
        )
    cursor.expect_end()
    return statement


def _read_directory(cursor: TokenCursor) -> str:
    if cursor.peek().text == "`/`":
        cursor.take()
        return "/"
    return cursor.path("a directory")


def _read_describe(cursor: TokenCursor) -> Describe | DescribeHistory:
    cursor.form = _DESCRIBE_FORM
    cursor.take()
    if cursor.sees("HISTORY") and cursor.sees_name(1):
        cursor.take()
        path = cursor.path()
        limit = _read_limit(cursor) if cursor.accept("LIMIT") else None
        cursor.expect_end()
        return DescribeHistory(path, limit)
    if cursor.sees("TABLE") and cursor.sees_name(1):
        cursor.take()
    path = cursor.path()
    cursor.expect_end()
    return Describe(path)


def _read_limit(cursor: TokenCursor) -> int:
    token = cursor.peek()
    found = value(token) if token.kind == NUMBER else None
    if not isinstance(found, int) or not 0 < found < 2**63:
        raise cursor.fault("expected a number of at least 1")
    cursor.take()
    return found


def _read_transaction(cursor: TokenCursor) -> Begin | Commit | Rollback:
    cursor.form = _TRANSACTION_FORM
    first = cursor.take().key
    if first == "START":
        cursor.expect("TRANSACTION")
    elif not cursor.accept("TRANSACTION"):
        cursor.accept("WORK")
    cursor.expect_end()
    if first in ("BEGIN", "START"):
        return Begin()
    return Rollback() if first == "ROLLBACK" else Commit()


_EXPLAINED = frozenset(
    (
        *("UPSERT", "INSERT", "REPLACE", "UPDATE", "DELETE", "MERGE", "EXPORT"),
        *("BACKUP", "COPY BACKUP", "COMPACT", "PRUNE", "DROP BACKUP", "RESTORE"),
    )
)
_QUERY_STARTS = ("SELECT", "WITH", "FROM", "VALUES", "(")
_READERS: dict[str, Callable[[TokenCursor], Statement]] = {
    "CREATE TABLE": read_create_table,
    "ALTER TABLE": read_alter_table,
    "DROP TABLE": read_drop_table,
    "CHECK": read_check_table,
    "UPSERT": read_write,
    "INSERT": read_write,
    "REPLACE": read_write,
    "UPDATE": read_update,
    "DELETE": read_delete,
    "MERGE": read_merge,
    **dict.fromkeys(_QUERY_STARTS, _read_select),
    "EXPLAIN": _read_explain,
    "EXPORT": read_export,
    "SHOW": _read_show,
    "DESCRIBE": _read_describe,
    "DESC": _read_describe,
    "CREATE BACKUP": read_create_collection,
    "ALTER BACKUP": read_alter_collection,
    "ALTER WAREHOUSE": read_alter_warehouse,
    "CREATE SCHEDULE": read_create_schedule,
    "ALTER SCHEDULE": read_alter_schedule,
    "DROP SCHEDULE": read_drop_schedule,
    "PAUSE": read_pause_schedule,
    "RESUME": read_pause_schedule,
    "ACKNOWLEDGE": read_acknowledge,
    "DROP BACKUP": read_drop_backup,
    "UNDROP TABLE": read_undrop_table,
    "UNDROP": read_undrop_collection,
    "ATTACH BACKUP": read_attach,
    "COPY BACKUP": read_copy_backup,
    "COMPACT": read_compact,
    "BACKUP": read_backup,
    "RESTORE": _read_restore,
    "VERIFY": read_verify,
    "REPAIR": read_repair,
    "PRUNE": read_prune,
    **dict.fromkeys(("BEGIN", "START", "COMMIT", "ROLLBACK"), _read_transaction),
    "VACUUM": read_maintain,
    "OPTIMIZE": read_maintain,
    "PIN": read_pin,
    "UNPIN": read_pin,
}

_DESCRIBED = (
    "DESCRIBE table has the columns, the key and the indexes; SHOW CREATE TABLE table, the statement."
)
_SHOWN_BY = {
    **dict.fromkeys(("COLUMNS", "INDEX", "INDEXES", "KEYS", "TABLE", "TBLPROPERTIES"), _DESCRIBED),
    **dict.fromkeys(
        ("CATALOGS", "DATABASES", "NAMESPACES", "SCHEMAS"), "Names are paths: SHOW TABLES [IN directory]."
    ),
    "VIEWS": "There are no views; SHOW TABLES lists the tables.",
    "FUNCTIONS": "Queries have the functions of Spark SQL.",
}
"""Hints for what Spark's SHOW has."""
_VIEWS = (
    "There are no views. db.sql reads temporary views of the Spark session: "
    "db.spark.sql('CREATE TEMPORARY VIEW ...')."
)
_OBJECTS = {
    **dict.fromkeys(("TEMP", "TEMPORARY", "VIEW"), _VIEWS),
    **dict.fromkeys(
        ("DATABASE", "NAMESPACE", "SCHEMA"), "A table's name is a path: CREATE TABLE `directory/table` (...)."
    ),
    "INDEX": "Use ALTER TABLE table ADD INDEX name GLOBAL ON (columns), or ALTER TABLE ... DROP INDEX name.",
    "TABLE": "Use DROP TABLE IF EXISTS table; CREATE TABLE table ... To replace only the rows, in one "
    "commit: DELETE FROM table; INSERT INTO table ...",
}
"""Hints for what Spark's CREATE and DROP have, by the kind of object."""

_ELSEWHERE = {
    **dict.fromkeys(("ABORT", "END"), "A transaction ends with COMMIT or ROLLBACK."),
    **dict.fromkeys(("SAVEPOINT", "RELEASE"), "A statement that fails leaves its transaction as it was."),
    **dict.fromkeys(
        ("DECLARE", "PRAGMA", "DEFINE", "DO"), "Leave it out; write values and subqueries in their place."
    ),
    **dict.fromkeys(
        ("SET", "RESET"),
        "Settings of a process are given to connect(); ALTER WAREHOUSE SET (...) changes the warehouse's.",
    ),
    "USE": "Paths are always complete, and connect() names the warehouse.",
    "TRUNCATE": "Use DELETE FROM table, which can be backed up incrementally like any change.",
    "ANALYZE": "Numbers of rows are always exact here; SELECT count(*) and DESCRIBE show them.",
    "TABLE": "Write SELECT * FROM table.",
    **dict.fromkeys(
        (
            "CACHE",
            "CALL",
            "CLEAR",
            "COMMENT",
            "COPY",
            "GRANT",
            "LOAD",
            "MSCK",
            "REFRESH",
            "REVOKE",
            "UNCACHE",
        ),
        "See the SQL reference for the statements there are.",
    ),
    **dict.fromkeys(
        ("CREATE", "ALTER", "DROP"),
        "Only TABLE, BACKUP COLLECTION and SCHEDULE can be created, altered and dropped.",
    ),
}


def _refusal(cursor: TokenCursor) -> SyntaxFault | Unsupported:
    first, second = cursor.peek(), cursor.peek(1)
    if first.key == "$":
        return cursor.unsupported(
            "a named expression or parameter ($name) without a value",
            "Bind one: db.sql(text, {'name': value}).",
        )
    if first.key == "\\":
        return cursor.fault(
            "expected a statement",
            "Commands with a backslash are for the shell on a terminal. Use SHOW TABLES or DESCRIBE here.",
        )
    if first.key in ("CREATE", "ALTER", "DROP"):
        if second.key in OTHER_OBJECTS:
            is_replace = second.key == "OR" and cursor.peek(2).key == "REPLACE"
            found = cursor.peek(3).key if is_replace else second.key
            what = f"{first.key} OR REPLACE" if is_replace else f"{first.key} {second.key}"
            return cursor.unsupported(what, _OBJECTS.get(found, _ELSEWHERE[first.key]))
        cursor.take()
        return cursor.fault("expected TABLE, BACKUP COLLECTION or SCHEDULE", _ELSEWHERE[first.key])
    if first.key in _ELSEWHERE:
        return cursor.unsupported(first.key, _ELSEWHERE[first.key])
    starts = sorted({key.split()[0] for key in _READERS} - {"("})
    return cursor.fault(
        "expected a statement",
        names.did_you_mean(first.key, starts) or f"Statements start with {', '.join(starts)}.",
    )
