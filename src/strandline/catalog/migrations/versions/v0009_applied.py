"""Numbers of applied writes, for their deduplication.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "applied",
        sa.Column("writer", sa.Text, primary_key=True),
        sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
    )
