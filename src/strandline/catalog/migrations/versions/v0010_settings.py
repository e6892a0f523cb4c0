"""Settings shared by all processes of the warehouse.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "settings",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("former", sa.Float, nullable=True),
        sa.Column("former_until", sa.Float, nullable=True),
    )
