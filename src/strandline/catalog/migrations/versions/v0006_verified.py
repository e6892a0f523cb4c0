"""Results of verifications, by level and time.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "verified",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True
        ),
        sa.Column("path_id", sa.BigInteger, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("verified_by_path", "verified", ["path_id"])
