"""Run the migrations with Alembic, without an ini file or a command line.

Imported only when a catalog is new or older than this version.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from strandline.errors import PreconditionFailed

_LOCK = 0x57A4D
"""Number of the advisory lock that lets one process at a time migrate a PostgreSQL catalog."""


def upgrade(engine: Engine) -> None:
    """Migrate the catalog to this version's schema in one transaction.

    If two processes migrate at once, the second one waits, and then finds the catalog migrated.
    """
    with engine.connect().execution_options(strandline_write=True) as conn, conn.begin():
        if engine.dialect.name == "postgresql":
            conn.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        config = _config()
        config.attributes["connection"] = conn
        command.upgrade(config, "head")


def knows(revision: str) -> bool:
    return any(
        script.revision == revision for script in ScriptDirectory.from_config(_config()).walk_revisions()
    )


def _config() -> Config:
    folder = Path(__file__).parent / "migrations"
    if not folder.is_dir():
        raise PreconditionFailed(
            "the catalog has another schema version, and a Spark worker cannot migrate it",
            "Open the warehouse once with strandline.connect(...), then try again.",
        )
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config
