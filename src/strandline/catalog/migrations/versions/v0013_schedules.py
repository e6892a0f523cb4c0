"""Schedules of backups, and their runs.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "schedule_runs",
        sa.Column("schedule_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("work", sa.Text, primary_key=True),
        sa.Column("due", sa.Float, primary_key=True),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("operation_id", sa.Text, nullable=True),
        sa.Column("began", sa.Float, nullable=True),
        sa.Column("ended", sa.Float, nullable=True),
        sa.Column("retry_at", sa.Float, nullable=True),
        sa.Column("note", sa.Text, nullable=True),
    )
    op.create_index("schedule_runs_by_state", "schedule_runs", ["state"])
