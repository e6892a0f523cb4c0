"""Progress of parts for display, the process of each operation, and the last renewal of each session.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    # Unknown for parts that existed before.
    op.add_column("parts", sa.Column("increment", sa.BigInteger, nullable=True))
    op.add_column("parts", sa.Column("path", sa.Text, nullable=True))
    op.add_column("parts", sa.Column("shard", sa.BigInteger, nullable=True))
    op.add_column("parts", sa.Column("bytes", sa.BigInteger, nullable=True))
    op.add_column("parts", sa.Column("began", sa.Float, nullable=True))
    op.add_column("parts", sa.Column("seconds", sa.Float, nullable=True))
    op.add_column("parts", sa.Column("process", sa.Text, nullable=True))
    op.add_column("parts", sa.Column("errors", sa.Text, nullable=True))
    op.add_column("operations", sa.Column("process", sa.Text, nullable=True))
    op.add_column("sessions", sa.Column("seen", sa.Float, nullable=True))
    begun = sa.text("began IS NOT NULL AND seconds IS NULL")
    op.create_index("parts_begun", "parts", ["operation_id"], sqlite_where=begun, postgresql_where=begun)
