"""Paths, descriptions, tables, chains of segments, commits, sessions, pins and holds.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_id = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "warehouse",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("created", sa.Float, nullable=False),
    )
    op.create_table(
        "clock",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "paths",
        sa.Column("id", _id, primary_key=True, autoincrement=True),
        sa.Column("parent_id", sa.BigInteger),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("operation_id", sa.Text),
        sa.Column("created_step", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.UniqueConstraint("parent_id", "name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "descriptions",
        sa.Column("path_id", sa.BigInteger, primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "board",
        sa.Column("generation", sa.BigInteger, primary_key=True),
        sa.Column("path_id", sa.BigInteger, primary_key=True),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("dropped", sa.Boolean, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
    )
    op.create_table(
        "tables",
        sa.Column("path_id", sa.BigInteger, primary_key=True),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("kept_from", sa.BigInteger, nullable=False),
        sa.Column("followed_step", sa.BigInteger),
        sa.Column("maintained_by", sa.Text),
    )
    op.create_table(
        "segments",
        sa.Column("id", _id, primary_key=True, autoincrement=True),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("fresh", sa.Boolean, nullable=False),
        sa.Column("stepped", sa.Boolean, nullable=False),
        sa.Column("after", sa.BigInteger, nullable=False),
        sa.Column("upto", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("file", sa.Text, unique=True),
        sa.Column("checksum", sa.Text, nullable=False),
        sa.Column("min_key", sa.Text),
        sa.Column("max_key", sa.Text),
        sa.Column("data", sa.LargeBinary),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "chains",
        sa.Column("table_id", sa.BigInteger, primary_key=True),
        sa.Column("segment_id", sa.BigInteger, sa.ForeignKey("segments.id"), primary_key=True),
        sa.Column("added", sa.BigInteger, nullable=False),
        sa.Column("removed", sa.BigInteger),
        sa.Column("reaches", sa.BigInteger, nullable=False),
        sa.Column("superseded", sa.Boolean, nullable=False),
    )
    op.create_index("chains_by_segment", "chains", ["segment_id"])
    op.create_table(
        "commits",
        sa.Column("table_id", sa.BigInteger, primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
    )
    op.create_index("commits_by_step", "commits", ["step"])
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
    )
    op.create_table(
        "pins",
        sa.Column("id", _id, primary_key=True, autoincrement=True),
        sa.Column("session_id", sa.Text),
        sa.Column("name", sa.Text, unique=True),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.Float),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "holds",
        sa.Column("owner_id", sa.BigInteger, primary_key=True),
        sa.Column("table_id", sa.BigInteger, primary_key=True),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("keeps_state", sa.Boolean, nullable=False),
    )
    op.create_table(
        "garbage", sa.Column("file", sa.Text, primary_key=True), sa.Column("time", sa.Float, nullable=False)
    )
