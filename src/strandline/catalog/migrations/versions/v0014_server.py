"""Tokens, browser sessions and the audit log of the service.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("paths", sa.Text, nullable=True),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("expires", sa.Float, nullable=True),
        sa.Column("revoked", sa.Float, nullable=True),
    )
    op.create_table(
        "web_sessions",
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("token_id", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("token_id", sa.Text, nullable=True),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("remote", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("result", sa.Text, nullable=True),
        sa.Column("operation_id", sa.Text, nullable=True),
        sqlite_autoincrement=True,
    )
    op.create_index("audit_by_time", "audit", ["time"])
