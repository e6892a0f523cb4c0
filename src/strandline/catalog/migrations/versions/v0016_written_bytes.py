"""Bytes that commits and merges have written, per table.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    for name in ("committed_bytes", "merged_bytes"):
        op.add_column("tables", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
