"""Indexes that find the unfinished parts of an operation, and the paths that a path owns.

Frozen: the schema as it was in this revision, independent of what ``catalog.sqltables`` says today.
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    is_open = sa.text("state <> 'done'")
    op.create_index(
        "parts_open",
        "parts",
        ["operation_id", "stage", "id"],
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.add_column("paths", sa.Column("owner_id", sa.BigInteger, nullable=True))
    _owners_of_streams(op.get_bind())
    op.create_index("paths_by_owner", "paths", ["owner_id"])
    op.create_index("holds_by_table", "holds", ["table_id"])


def _owners_of_streams(conn: sa.Connection) -> None:
    paths = sa.table("paths", sa.column("id"), sa.column("type"), sa.column("body"), sa.column("owner_id"))
    owned = []
    for row in conn.execute(sa.select(paths.c.id, paths.c.body).where(paths.c.type == "stream")):
        owner = json.loads(row.body).get("owner")
        if owner is not None:
            owned.append({"stream": row.id, "owner": owner})
    if owned:
        set_owner = sa.update(paths).where(paths.c.id == sa.bindparam("stream"))
        conn.execute(set_owner.values(owner_id=sa.bindparam("owner")), owned)
