"""When a row of a chain was removed, and which step a session still reads. Pins are by name only: what a
session reads is said in its own row.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # Not known for what was removed before; the collector then counts from the first time it looks.
    op.add_column("chains", sa.Column("removed_at", sa.Float, nullable=True))
    op.add_column("sessions", sa.Column("reads_from", sa.BigInteger, nullable=True))
    op.execute("DELETE FROM pins WHERE name IS NULL")
    op.drop_column("pins", "session_id")
    op.drop_column("pins", "expires")
