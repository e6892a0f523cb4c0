"""``strandline.register``: register ``format("strandline")`` and tables with a Spark session."""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING

from strandline.api.connector import connect, place_of
from strandline.api.source.ddl_guard import guard_ddl
from strandline.api.source.options import Place
from strandline.errors import InvalidArgument
from strandline.names import is_backup, is_replaced
from strandline.storage import frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_known: weakref.WeakSet[SparkSession] = weakref.WeakSet()
_NAME = re.compile(r"\w+", re.ASCII)
"""Names of views and tables that need no quotes."""


def register(
    spark: SparkSession,
    warehouse: str | None = None,
    *,
    catalog: str | None = None,
    views: str | None = None,
    namespace: str | None = None,
) -> None:
    """Register ``format("strandline")`` with a Spark session, classic or Spark Connect.

    Views and tables keep the columns that they have now. A query sees the rows at the time when it is first
    executed. May be called again, from any thread.

    Args:
        spark: the session.
        warehouse: default for the option ``warehouse`` of queries.
        catalog: default for the option ``catalog``.
        views: create a temporary view for each table, with this prefix. With ``"shop_"``, the table
            ``/orders`` becomes ``shop_orders``, and ``/2026/orders`` becomes ``shop_2026_orders``.
        namespace: create a table for each table in this Spark database, such as ``shop.orders`` and
            ``shop.2026_orders``. The database is created if it is missing.
    """
    from strandline.api.source.source import StrandlineSource, with_default

    if warehouse is None and (catalog, views, namespace) != (None, None, None):
        raise InvalidArgument("no warehouse is given", "Write register(spark, warehouse).")
    place = None if warehouse is None else Place(place_of(warehouse), catalog)
    frames.register_source(spark, StrandlineSource if place is None else with_default(place))
    _known.add(spark)
    if place is not None and views is not None:
        _make_views(spark, place, views)
    if place is not None and namespace is not None:
        _make_tables(spark, place, namespace)


def register_once(spark: SparkSession) -> None:
    """Register the format with a session, unless it is registered already."""
    if spark not in _known:
        register(spark)


def _make_views(spark: SparkSession, place: Place, prefix: str) -> None:
    where = {"warehouse": place.warehouse} | ({"catalog": place.catalog} if place.catalog else {})
    made, named = [], _table_names(place, prefix)
    for name, path in named.items():
        options = ", ".join(f"`{key}` {_text(value)}" for key, value in {**where, "table": path}.items())
        made.append(f"CREATE OR REPLACE TEMPORARY VIEW `{name}` USING strandline OPTIONS ({options})")
    frames.run(spark, made)
    guard_ddl(spark, None, named)


def _make_tables(spark: SparkSession, place: Place, namespace: str) -> None:
    """Replace the tables of a namespace in Spark's catalog.

    Spark passes no options to the source of such a table, so each table gets its own source class.
    """
    from strandline.api.source.source import of_table

    if not _NAME.fullmatch(namespace):
        raise InvalidArgument(
            f"{namespace!r} cannot be a namespace", "Use letters, digits and underscores in its name."
        )
    sources = {
        f"strandline_{namespace}_{name}": (name, path) for name, path in _table_names(place, "").items()
    }
    frames.run(spark, [f"CREATE DATABASE IF NOT EXISTS `{namespace}`"])
    before = frames.tables_of(spark, namespace)
    for name, path in sources.values():
        if not before.get(name.lower(), "strandline").startswith("strandline"):
            raise InvalidArgument(
                f"{namespace}.{name} already exists and is not {path}", "Choose another namespace."
            )
    gone = [name for name, provider in before.items() if provider.startswith("strandline")]
    frames.run(spark, [f"DROP TABLE `{namespace}`.`{name}`" for name in gone])
    for source, (name, path) in sources.items():
        frames.register_source(spark, of_table(place, path, source))
        frames.run(spark, [f"CREATE TABLE `{namespace}`.`{name}` USING {source}"])
    guard_ddl(spark, namespace, dict(sources.values()))


def _table_names(place: Place, prefix: str) -> dict[str, str]:
    """Return the paths of tables by their names in Spark. Skip tables whose name would need quotes."""
    with connect(place.warehouse, catalog=place.catalog, create=False) as db:
        entries = db.ls("/", depth=None)
    named: dict[str, str] = {}
    indexes = {entry.path for entry in entries if entry.type == "index"}
    for entry in entries:
        is_own = not is_backup(entry.path) and not is_replaced(entry.path)
        if entry.type != "table" or not is_own or entry.path.rpartition("/")[0] in indexes:
            continue
        name = (prefix + entry.path[1:].replace("/", "_")).lower()
        if name in named:
            raise InvalidArgument(
                f"{named[name]} and {entry.path} would both have the name {name}",
                'Read them by their paths: format("strandline").load("/orders").',
            )
        if _NAME.fullmatch(name):
            named[name] = entry.path
    return named


def _text(value: str) -> str:
    """Return a string literal for Spark."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
