"""The history of versions, and the counters of all processes.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("board", sa.Column("step", sa.BigInteger, nullable=True))
    op.add_column("board", sa.Column("operation_id", sa.Text, nullable=True))
    op.create_table(
        "claimed",
        sa.Column("operation_id", sa.Text, primary_key=True),
        sa.Column("path_id", sa.BigInteger, primary_key=True),
        sa.Column("part_id", sa.BigInteger, primary_key=True),
        sa.Column("writer", sa.BigInteger, nullable=False),
        sa.Column("published", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
    )
    op.create_table(
        "noticed",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True
        ),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("path_id", sa.BigInteger, nullable=True),
        sa.Column("other", sa.Text, nullable=True),
        sa.Column("operation_id", sa.Text, nullable=True),
        sa.Column("part_id", sa.BigInteger, nullable=True),
        sa.Column("expected", sa.BigInteger, nullable=True),
        sa.Column("actual", sa.BigInteger, nullable=True),
        sa.Column("generation", sa.BigInteger, nullable=True),
        sa.Column("seconds", sa.Float, nullable=True),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "counts",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("labels", sa.Text, primary_key=True),
        sa.Column("value", sa.Float, nullable=False),
    )
