"""Refuse statements that Spark cannot run on registered tables, with a hint which statement to use.

A table of a namespace is an entry in Spark's catalog that refers to a table of a warehouse. Spark executes
ALTER TABLE, DROP TABLE and CREATE TABLE on its own entry, reports success, and never asks the data source. So
``spark.sql`` of a session with registered tables checks such statements first. It refuses UPDATE, DELETE,
MERGE, INSERT OVERWRITE, time travel, DESCRIBE HISTORY, RESTORE, OPTIMIZE and VACUUM as well: Spark does not
have them for a Python data source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from strandline.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["guard_ddl"]

_PART = r"(?:`(?:[^`]|``)+`|\w+)"
_STATEMENT = re.compile(
    r"\b(?:(?P<verb>ALTER|DROP|TRUNCATE|REPLACE|CREATE(?:\s+OR\s+REPLACE)?(?:\s+EXTERNAL)?)\s+TABLE"
    r"|(?P<gone>DROP)\s+(?:DATABASE|SCHEMA|NAMESPACE))"
    rf"\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?(?P<name>{_PART}(?:\s*\.\s*{_PART})*)",
    re.IGNORECASE,
)
_NAME = rf"(?P<name>{_PART}(?:\s*\.\s*{_PART})*)"
_CHANGE = re.compile(
    rf"\b(?P<verb>UPDATE|DELETE\s+FROM|MERGE\s+INTO|INSERT\s+OVERWRITE(?:\s+TABLE)?)\s+{_NAME}", re.IGNORECASE
)
_UPKEEP = re.compile(
    rf"^\s*(?P<verb>DESC(?:RIBE)?\s+HISTORY|RESTORE(?:\s+TABLE)?|OPTIMIZE|VACUUM)\s+{_NAME}", re.IGNORECASE
)
_TRAVEL = re.compile(
    rf"\b(?:FROM|JOIN)\s+{_NAME}\s+(?:FOR\s+)?(?:SYSTEM_)?(?P<verb>VERSION|TIMESTAMP|TIME)\s+AS\s+OF\b",
    re.IGNORECASE,
)
_INSTEAD = {
    "UPDATE": "UPDATE {} SET ...",
    "DELETE": "DELETE FROM {} ...",
    "MERGE": "MERGE INTO {} ...",
    "INSERT": "DELETE FROM {0}; UPSERT INTO {0} ...",
    "DESC": "DESCRIBE HISTORY {}",
    "DESCRIBE": "DESCRIBE HISTORY {}",
    "RESTORE": "RESTORE TABLE {} TO VERSION AS OF ...",
    "OPTIMIZE": "OPTIMIZE {}",
    "VACUUM": "VACUUM {}",
    "VERSION": "SELECT ... FROM {} VERSION AS OF ...",
    "TIMESTAMP": "SELECT ... FROM {} TIMESTAMP AS OF ...",
    "TIME": "SELECT ... FROM {} TIMESTAMP AS OF ...",
}
"""Statements of ``db.sql`` to use instead, by the first word of the clause that Spark does not support."""
_WHOLE = {
    "INSERT": "INSERT OVERWRITE",
    "DESC": "DESCRIBE HISTORY",
    "DESCRIBE": "DESCRIBE HISTORY",
    "VERSION": "VERSION AS OF",
    "TIMESTAMP": "TIMESTAMP AS OF",
    "TIME": "TIME AS OF",
}
"""The whole clauses, where their first word is another statement."""
_CREATES = re.compile("CREATE|REPLACE")
_USING = re.compile(r"\bUSING\s+`?(\w+)`?", re.IGNORECASE)
_UNSAID = re.compile(r"""--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
"""Comments and string literals of a statement."""
_IDENTIFIER = re.compile(r"""\bIDENTIFIER\s*\(\s*(['"])([^'"]+)\1\s*\)""", re.IGNORECASE)
_IMMEDIATE = re.compile(r"""\bEXECUTE\s+IMMEDIATE\s+(['"])(.+?)(?<!\\)\1""", re.IGNORECASE | re.DOTALL)
"""EXECUTE IMMEDIATE, with the text of the statement that it runs."""


class _GuardedSql:
    """A replacement of ``spark.sql`` of one session that refuses DDL on registered tables."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._run: Callable[..., Any] = spark.sql
        self._tables: dict[str, str] = {}
        self._namespaces: set[str] = set()

    def add(self, namespace: str | None, tables: Mapping[str, str]) -> None:
        """Refuse DDL on these tables. They replace the tables that were added for the namespace before.

        Args:
            namespace: the database in Spark's catalog that has the tables. None: they are temporary views.
            tables: names of the tables or views in Spark, with their paths in the warehouse.
        """
        if namespace is not None:
            prefix = f"{namespace.lower()}."
            self._namespaces.add(namespace.lower())
            self._tables = {k: v for k, v in self._tables.items() if not k.startswith(prefix)}
            tables = {prefix + name: path for name, path in tables.items()}
        self._tables.update(tables)

    def __call__(self, sqlQuery: str, *args: Any, **options: Any) -> Any:
        self._check(sqlQuery)
        return self._run(sqlQuery, *args, **options)

    def _check(self, text: str) -> None:
        if not isinstance(text, str):
            return
        said = _UNSAID.sub(" ", _IMMEDIATE.sub(r"\2", _IDENTIFIER.sub(r"\2", text)))
        for pattern in (_CHANGE, _UPKEEP, _TRAVEL):
            for found in pattern.finditer(said):
                self._check_change(found["verb"].upper().split()[0], _parts(found["name"]))
        for found in _STATEMENT.finditer(said):
            parts = _parts(found["name"])
            if found["gone"]:
                if parts[-1] in self._namespaces:
                    raise _refusal(f"DROP DATABASE {parts[-1]}", "DROP TABLE ...")
                continue
            self._check_table(" ".join(found["verb"].upper().split()), parts, said)

    def _check_change(self, verb: str, parts: list[str]) -> None:
        path = self._path(parts)
        if path is not None:
            raise Unsupported(
                f"Spark has no {_WHOLE.get(verb, verb)} for {'.'.join(parts)}, a table of a warehouse",
                f'Use db.sql("{_INSTEAD[verb].format(_quoted(path[1:]))}").',
            )

    def _path(self, parts: list[str]) -> str | None:
        """Return the path of a registered table; None for another table."""
        path = self._tables.get(parts[0]) if len(parts) == 1 else None
        if path is None:
            namespace = parts[-2] if len(parts) > 1 else self._spark.catalog.currentDatabase().lower()
            path = self._tables.get(f"{namespace}.{parts[-1]}")
        return path

    def _check_table(self, verb: str, parts: list[str], text: str) -> None:
        path = self._path(parts)
        if path is None:
            namespace = parts[-2] if len(parts) > 1 else self._spark.catalog.currentDatabase().lower()
            if not self._would_create(verb, namespace, text):
                return
        quoted = _quoted(parts[-1] if path is None else path[1:])
        instead = {"ALTER": f"ALTER TABLE {quoted} ...", "DROP": f"DROP TABLE {quoted}"}.get(verb)
        instead = instead or (
            f"DELETE FROM {quoted}" if verb == "TRUNCATE" else f"CREATE TABLE {quoted} (...)"
        )
        raise _refusal(f"{verb} TABLE {'.'.join(parts)}", instead)

    def _would_create(self, verb: str, namespace: str, text: str) -> bool:
        """Return whether a statement seems to create a table in a registered namespace or of this format.

        A statement with another format after USING creates a table of Spark, and is allowed.
        """
        using = _USING.search(text)
        return bool(_CREATES.match(verb)) and (
            namespace in self._namespaces if using is None else using[1].lower().startswith("strandline")
        )


def _parts(name: str) -> list[str]:
    """Return the parts of a name in lower case, without Spark's own catalog."""
    parts = [part.strip().strip("`").lower() for part in re.findall(_PART, name)]
    return parts[1:] if parts[0] == "spark_catalog" and len(parts) > 1 else parts


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else f"`{name}`"


def _refusal(statement: str, instead: str) -> Unsupported:
    return Unsupported(
        f"{statement} would change Spark's catalog and nothing in the warehouse",
        f'Use db.sql("{instead}"), and then call strandline.register again.',
    )


def guard_ddl(spark: SparkSession, namespace: str | None, tables: Mapping[str, str]) -> None:
    """Make ``spark.sql`` of a session refuse DDL on registered tables.

    Args:
        spark: the session.
        namespace: the database in Spark's catalog that has the tables. None: they are temporary views.
        tables: names of the tables or views in Spark, with their paths in the warehouse.
    """
    guarded: Any = spark.sql
    if not isinstance(guarded, _GuardedSql):
        guarded = _GuardedSql(spark)
        spark.sql = guarded  # type: ignore[method-assign]
    guarded.add(namespace, tables)
