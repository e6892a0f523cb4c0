"""Alarms, messages about them, channels, and the process that looks for problems.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "alarms",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("hint", sa.Text, nullable=False),
        sa.Column("raised_at", sa.Float, nullable=False),
        sa.Column("cleared_at", sa.Float, nullable=True),
        sa.Column("acknowledged_at", sa.Float, nullable=True),
        sa.Column("acknowledged_by", sa.Text, nullable=True),
        sa.Column("last_sent", sa.Float, nullable=True),
        sa.Column("times_sent", sa.BigInteger, nullable=False),
    )
    op.create_index("alarms_by_end", "alarms", ["cleared_at"])
    op.create_table(
        "alarm_sends",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("channel", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("times", sa.BigInteger, nullable=False),
        sa.Column("sure", sa.Boolean, nullable=False),
    )
    op.create_table(
        "alarm_channels",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("claimed_by", sa.Text, nullable=True),
        sa.Column("claimed_until", sa.Float, nullable=True),
        sa.Column("failures", sa.BigInteger, nullable=False),
        sa.Column("failed_since", sa.Float, nullable=True),
        sa.Column("retry_at", sa.Float, nullable=True),
        sa.Column("note", sa.Text, nullable=True),
    )
    op.create_table(
        "alarm_watch",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("round", sa.BigInteger, nullable=False),
        sa.Column("next_at", sa.Float, nullable=False),
        sa.Column("until", sa.Float, nullable=False),
    )
