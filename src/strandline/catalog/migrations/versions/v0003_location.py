"""The folder of the catalog's warehouse; unknown in older catalogs.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("warehouse", sa.Column("location", sa.Text, nullable=True))
