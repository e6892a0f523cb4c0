"""The SQLAlchemy dialect."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry

from strandline.dbapi import dialect
from tests.catalogs import place_catalog

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    registry.register("strandline", dialect.__name__, "StrandlineDialect")
    place_catalog(tmp_path / "catalog.sqlite")
    engine = sa.create_engine(f"strandline:///{tmp_path}?create=true")
    yield engine
    engine.dispose()


def test_the_package_tells_sqlalchemy_of_its_dialect() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    points = project["entry-points"]["sqlalchemy.dialects"]
    assert points == {"strandline": f"{dialect.__name__}:{dialect.StrandlineDialect.__name__}"}


def test_tables_are_made_filled_changed_read_and_looked_at(engine: sa.Engine) -> None:
    metadata = sa.MetaData()
    table = sa.Table(
        "some table",
        metadata,
        sa.Column("k", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(20)),
        sa.Column("amount", sa.Numeric(10, 2)),
        sa.Column("at", sa.DateTime(timezone=True)),
        sa.Column("day", sa.Date),
        sa.Column("data", sa.LargeBinary),
        sa.Column("is_new", sa.Boolean),
        sa.Column("x", sa.Float),
    )
    metadata.create_all(engine)
    metadata.create_all(engine)
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    row = (1, "a", Decimal("1.50"), at, date(2026, 1, 1), b"x", True, 0.5)
    with engine.begin() as connection:
        connection.execute(
            table.insert(), [dict(zip(table.c.keys(), r, strict=True)) for r in (row, (2, *[None] * 7))]
        )
        connection.execute(table.update().where(table.c.k == 2).values(name="b"))
    with engine.connect() as connection:
        assert connection.execute(sa.select(table).order_by(table.c.k).limit(1)).all() == [row]
        connection.execute(table.delete())
        connection.rollback()
        named = sa.text("SELECT name FROM `some table` WHERE k = :k")
        assert connection.execute(named, {"k": 2}).scalar() == "b"
    with pytest.raises(sa.exc.IntegrityError), engine.begin() as connection:
        connection.execute(table.insert(), {"k": 1})
    seen = sa.inspect(engine)
    assert seen.get_table_names() == ["some table"] and not seen.has_table("nope")
    assert seen.get_pk_constraint("some table")["constrained_columns"] == ["k"]
    again = sa.Table("some table", sa.MetaData(), autoload_with=engine)
    assert [type(c.type).__name__ for c in again.c] == [
        "BigInteger",
        "Text",
        "Numeric",
        "DateTime",
        "Date",
        "LargeBinary",
        "Boolean",
        "Float",
    ]
    with pytest.raises(sa.exc.NoSuchTableError):
        sa.Table("nope", sa.MetaData(), autoload_with=engine)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE `some table` ADD INDEX by_name GLOBAL UNIQUE SYNC ON (name)"))
    (index,) = sa.inspect(engine).get_indexes("some table")
    assert (index["name"], index["column_names"], index["unique"]) == ("by_name", ["name"], True)
