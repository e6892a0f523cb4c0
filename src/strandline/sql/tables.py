"""Reads CREATE, ALTER, DROP and CHECK TABLE."""

from __future__ import annotations

from typing import Any

from strandline.model import IndexDef, IndexKind
from strandline.sql.changes import read_query
from strandline.sql.cursor import TokenCursor
from strandline.sql.evaluate.literals import NotConstant, literal
from strandline.sql.settings import read_setting_value, read_settings
from strandline.sql.statements import (
    AddChangefeed,
    AddColumn,
    AddIndex,
    AlterAction,
    AlterChangefeed,
    AlterTable,
    CheckTable,
    ColumnDef,
    CreateTable,
    DropChangefeed,
    DropColumn,
    DropIndex,
    DropTable,
    RenameColumn,
    RenameTable,
    Setting,
    UndropTable,
)
from strandline.sql.tokens import NUMBER, Token

__all__ = [
    "read_alter_table",
    "read_check_table",
    "read_create_table",
    "read_drop_table",
    "read_undrop_table",
]

_INDEX_FORM = "INDEX name GLOBAL [UNIQUE] [SYNC | ASYNC] ON (columns) [COVER (columns)]"
CREATE_FORM = (
    "CREATE TABLE [IF NOT EXISTS] table (column type [NOT NULL], ..., PRIMARY KEY (columns), "
    f"{_INDEX_FORM}, ...) "
    "[WITH (PARTITION_AT_KEYS = (key, ...), UNIFORM_PARTITIONS = n)] [AS SELECT ...]"
)
ALTER_FORM = (
    "ALTER TABLE table ADD COLUMN column type | DROP COLUMN column "
    f"| ADD {_INDEX_FORM} | DROP INDEX name | ADD CHANGEFEED name WITH (MODE = '...', FORMAT = '...') | "
    "ALTER CHANGEFEED name SET (MODE = '...') | DROP CHANGEFEED name | RENAME TO table "
    "| RENAME COLUMN column TO column, ..."
)
DROP_FORM = "DROP TABLE [IF EXISTS] table [PURGE]"
UNDROP_FORM = "UNDROP TABLE table [AS table]"
CHECK_FORM = "CHECK TABLE table"


def read_create_table(cursor: TokenCursor) -> CreateTable:
    cursor.form = CREATE_FORM
    cursor.expect("CREATE", "TABLE")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    path = cursor.path()
    _refuse_using(cursor)
    if cursor.sees("AS"):
        raise cursor.fault(
            "expected ( with the PRIMARY KEY",
            f"Name the key before AS: CREATE TABLE {path.lstrip('/')} (PRIMARY KEY (column)) AS SELECT ...",
        )
    cursor.expect("(")
    columns: list[ColumnDef] = []
    indexes: list[IndexDef] = []
    key: tuple[str, ...] | None = None
    while True:
        token = cursor.peek()
        if cursor.sees("PRIMARY", "KEY", "("):
            if key is not None:
                raise cursor.fault("PRIMARY KEY is given twice", token=token)
            cursor.expect("PRIMARY", "KEY")
            key = cursor.name_list("a column of the key")
        elif cursor.sees("INDEX") and cursor.sees_name(1) and cursor.peek(2).key in ("GLOBAL", "LOCAL", "ON"):
            indexes.append(_read_index(cursor))
        else:
            columns.append(_read_column(cursor))
        if cursor.accept(")"):
            break
        if not cursor.accept(","):
            raise cursor.fault("expected , or )")
    _refuse_using(cursor)
    if key is None:
        raise cursor.fault(
            "expected PRIMARY KEY (columns) in the list of columns", token=cursor.tokens[cursor.at - 1]
        )
    keys, uniform, settings = _read_table_settings(cursor)
    source = read_query(cursor) if cursor.accept("AS") else None
    if source is None:
        cursor.expect_end()
    return CreateTable(
        path,
        tuple(columns),
        key,
        indexes=tuple(indexes),
        partition_at_keys=keys,
        uniform_partitions=uniform,
        if_not_exists=if_not_exists,
        settings=settings,
        source=source,
    )


def _refuse_using(cursor: TokenCursor) -> None:
    if cursor.sees("USING"):
        raise cursor.unsupported("CREATE TABLE ... USING", f"Leave it out, with its options. {cursor.hint}")


def _read_column(cursor: TokenCursor) -> ColumnDef:
    name = cursor.name("a column name")
    type_ = _read_type(cursor)
    not_null = cursor.accept("NOT", "NULL")
    if not not_null:
        cursor.accept("NULL")
    if cursor.peek().key in ("DEFAULT", "FAMILY", "GENERATED"):
        raise cursor.unsupported(f"{cursor.peek().key} of a column", f"Leave it out. {cursor.hint}")
    if cursor.sees("PRIMARY", "KEY"):
        raise cursor.fault("expected , or )", f"Name the key at the end: PRIMARY KEY ({name}).")
    return ColumnDef(name, type_, not_null)


def _read_type(cursor: TokenCursor) -> str:
    start = cursor.peek()
    text = cursor.name("a type")
    if not cursor.accept("("):
        return text
    sizes: list[str] = []
    while True:
        size = cursor.take()
        if size.kind != NUMBER or not size.text.isdigit():
            raise cursor.fault(f"expected a whole number in the type {text}", token=size)
        sizes.append(size.text)
        if cursor.accept(")"):
            return f"{text}({','.join(sizes)})"
        if not cursor.accept(",") or len(sizes) > 1:
            raise cursor.fault(f"expected {text}(precision,scale)", token=start)


def _read_index(cursor: TokenCursor) -> IndexDef:
    cursor.expect("INDEX")
    name = cursor.name("the name of an index")
    if cursor.sees("LOCAL"):
        raise cursor.unsupported("a LOCAL index", f"The form is: {_INDEX_FORM}")
    cursor.expect("GLOBAL")
    unique = cursor.accept("UNIQUE")
    kind: IndexKind = "GLOBAL SYNC"
    if unique and cursor.sees("ASYNC"):
        raise cursor.unsupported(
            "a UNIQUE ASYNC index",
            "Leave ASYNC out: an index that follows later cannot refuse a row.",
        )
    if cursor.accept("ASYNC"):
        kind = "GLOBAL ASYNC"
    else:
        cursor.accept("SYNC")
    if cursor.sees("USING"):
        raise cursor.unsupported("an index USING anything", f"The form is: {_INDEX_FORM}")
    cursor.expect("ON")
    columns = cursor.name_list("a column of the index")
    cover = cursor.name_list("a covered column") if cursor.accept("COVER") else ()
    return IndexDef(name=name, kind=kind, columns=columns, cover=cover, unique=unique)


def _read_table_settings(
    cursor: TokenCursor,
) -> tuple[tuple[tuple[Any, ...], ...] | None, int | None, tuple[Setting, ...]]:
    keys: tuple[tuple[Any, ...], ...] | None = None
    uniform: int | None = None
    settings: list[Setting] = []
    if not cursor.accept("WITH"):
        return None, None, ()
    cursor.expect("(")
    while True:
        token = cursor.peek()
        name = cursor.name("the name of a setting").upper()
        if (name == "PARTITION_AT_KEYS" and keys is not None) or (
            name == "UNIFORM_PARTITIONS" and uniform is not None
        ):
            raise cursor.fault(f"{name} is given twice", token=token)
        cursor.expect("=")
        if name == "PARTITION_AT_KEYS":
            keys = _read_split_points(cursor)
        elif name == "UNIFORM_PARTITIONS":
            value = read_setting_value(cursor)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise cursor.fault("expected a positive whole number for UNIFORM_PARTITIONS", token=token)
            uniform = value
        else:
            settings.append((name, read_setting_value(cursor)))
        if cursor.accept(")"):
            return keys, uniform, tuple(settings)
        if not cursor.accept(","):
            raise cursor.fault("expected , or )")


def _read_split_points(cursor: TokenCursor) -> tuple[tuple[Any, ...], ...]:
    """Read split points: ``(1, 2)`` for a key's first column, or ``((1, 'a'), (2, 'b'))`` for several."""
    cursor.expect("(")
    points: list[tuple[Any, ...]] = []
    while True:
        if cursor.accept("("):
            point = [_read_constant(cursor)]
            while cursor.accept(","):
                point.append(_read_constant(cursor))
            cursor.expect(")")
            points.append(tuple(point))
        else:
            points.append((_read_constant(cursor),))
        if cursor.accept(")"):
            return tuple(points)
        if not cursor.accept(","):
            raise cursor.fault("expected , or )")


def _read_constant(cursor: TokenCursor) -> Any:
    token: Token = cursor.peek()
    try:
        return literal(cursor.expression(","))
    except NotConstant:
        raise cursor.fault("expected a constant as a split point", token=token) from None


def read_alter_table(cursor: TokenCursor) -> AlterTable:
    cursor.form = ALTER_FORM
    cursor.expect("ALTER", "TABLE")
    path = cursor.path()
    actions = [*_read_actions(cursor)]
    while cursor.accept(","):
        actions += _read_actions(cursor)
    cursor.expect_end()
    return AlterTable(path, tuple(actions))


def _read_actions(cursor: TokenCursor) -> list[AlterAction]:
    """Read an action, or Spark's ADD COLUMNS (...) and DROP COLUMNS (...)."""
    if cursor.sees("DROP", "COLUMNS", "("):
        cursor.expect("DROP", "COLUMNS")
        return [DropColumn(name) for name in cursor.name_list("a column name")]
    if not cursor.sees("ADD", "COLUMNS", "("):
        return [_read_action(cursor)]
    cursor.expect("ADD", "COLUMNS", "(")
    columns: list[AlterAction] = [AddColumn(_read_column(cursor))]
    while cursor.accept(","):
        columns.append(AddColumn(_read_column(cursor)))
    cursor.expect(")")
    return columns


def _read_action(cursor: TokenCursor) -> AlterAction:
    if cursor.accept("ALTER", "CHANGEFEED"):
        name = cursor.name("the name of a changefeed")
        cursor.expect("SET")
        return AlterChangefeed(name, read_settings(cursor))
    if cursor.accept("RENAME", "TO"):
        return RenameTable(cursor.path("the new name of the table"))
    if cursor.accept("RENAME", "COLUMN"):
        name = cursor.name("a column name")
        cursor.expect("TO")
        return RenameColumn(name, cursor.name("the new name of the column"))
    if cursor.peek().key in ("RENAME", "SET", "RESET", "ALTER"):
        raise cursor.unsupported(f"ALTER TABLE ... {cursor.peek().key}")
    if cursor.accept("ADD"):
        if cursor.sees("INDEX") and cursor.sees_name(1) and cursor.peek(2).key in ("GLOBAL", "LOCAL", "ON"):
            return AddIndex(_read_index(cursor))
        if cursor.accept("CHANGEFEED"):
            name = cursor.name("the name of a changefeed")
            cursor.expect("WITH")
            return AddChangefeed(name, read_settings(cursor))
        cursor.accept("COLUMN")
        return AddColumn(_read_column(cursor))
    if not cursor.accept("DROP"):
        raise cursor.fault("expected ADD, ALTER, DROP or RENAME")
    for word, make, what in (
        ("INDEX", DropIndex, "the name of an index"),
        ("CHANGEFEED", DropChangefeed, "the name of a changefeed"),
        ("COLUMN", DropColumn, "a column name"),
    ):
        if cursor.sees(word) and cursor.sees_name(1):
            cursor.expect(word)
            return make(cursor.name(what))
    return DropColumn(cursor.name("COLUMN, INDEX or CHANGEFEED"))


def read_drop_table(cursor: TokenCursor) -> DropTable:
    cursor.form = DROP_FORM
    cursor.expect("DROP", "TABLE")
    if_exists = cursor.accept("IF", "EXISTS")
    path = cursor.path()
    purge = cursor.accept("PURGE")
    cursor.expect_end()
    return DropTable(path, if_exists, purge)


def read_undrop_table(cursor: TokenCursor) -> UndropTable:
    cursor.form = UNDROP_FORM
    cursor.expect("UNDROP", "TABLE")
    path = cursor.path()
    as_path = cursor.path() if cursor.accept("AS") else None
    cursor.expect_end()
    return UndropTable(path, as_path)


def read_check_table(cursor: TokenCursor) -> CheckTable:
    cursor.form = CHECK_FORM
    cursor.expect("CHECK", "TABLE")
    path = cursor.path()
    cursor.expect_end()
    return CheckTable(path)
