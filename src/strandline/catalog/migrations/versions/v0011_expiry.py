"""The time when each description was recorded, and an index of operations by their end.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("descriptions", sa.Column("time", sa.Float, nullable=True))
    op.create_index("operations_by_end", "operations", ["ended"])
