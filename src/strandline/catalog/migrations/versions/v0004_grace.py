"""The time when a row of a chain was removed, and the oldest step that a session reads.

Pins without a name are deleted: sessions record what they read in their own rows.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # Unknown for rows that were removed before; the collector counts from the first time it sees them.
    op.add_column("chains", sa.Column("removed_at", sa.Float, nullable=True))
    op.add_column("sessions", sa.Column("reads_from", sa.BigInteger, nullable=True))
    op.execute("DELETE FROM pins WHERE name IS NULL")
    op.drop_column("pins", "session_id")
    op.drop_column("pins", "expires")
