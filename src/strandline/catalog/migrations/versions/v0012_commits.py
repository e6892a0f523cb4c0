"""Author, statement and numbers of changed rows of each commit.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    for name, type_ in (
        ("author", sa.Text),
        ("statement", sa.Text),
        ("inserted", sa.BigInteger),
        ("updated", sa.BigInteger),
        ("deleted", sa.BigInteger),
    ):
        op.add_column("commits", sa.Column(name, type_, nullable=True))
