"""What all commands share: the global options, the way to the warehouse, and where output goes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.cli.logs import Form, Level
from strandline.cli.output import Output
from strandline.errors import Unavailable
from strandline.names import MARKER
from strandline.work import Interrupted

if TYPE_CHECKING:
    from strandline.api import Database
    from strandline.settings import Settings


def settings_here() -> Settings:
    """The settings as the environment gives them: where the key of an encrypted repository is. That is a
    place, and never the key itself."""
    from strandline.settings import Settings

    def named(setting: str) -> str | None:
        return os.environ.get(f"STRANDLINE_{setting.upper()}") or None

    return Settings(
        repository_key_file=named("repository_key_file"),
        repository_key_env=named("repository_key_env"),
        repository_key_command=named("repository_key_command"),
    )


@dataclass(kw_only=True)
class Cli:
    """One run of the command line. Options may stand before the command or after it; the later one wins."""

    warehouse: str | None = None
    catalog: str | None = None
    debug: bool = False
    log_level: Level | None = None
    log_format: Form | None = None
    output: Output = field(default_factory=Output)
    was_late: bool = False
    """It was interrupted when what it did was done already."""

    def folder(self) -> str:
        """``--warehouse``, else ``STRANDLINE_WAREHOUSE``, else the current folder when it is a warehouse."""
        named = self.warehouse or os.environ.get("STRANDLINE_WAREHOUSE")
        if named:
            return named
        if Path(MARKER).exists():
            return "."
        raise Unavailable(
            f"no warehouse is named, and the current folder {Path.cwd()} is not one",
            "Name one with -w FOLDER or STRANDLINE_WAREHOUSE, or create one with strandline init FOLDER.",
        )

    def catalog_url(self) -> str | None:
        """``--catalog``, else ``STRANDLINE_CATALOG``, else None: the SQLite file in the warehouse."""
        return self.catalog or os.environ.get("STRANDLINE_CATALOG") or None

    @contextmanager
    def database(self, *, create: bool = False, adopt: bool = False) -> Iterator[Database]:
        """The warehouse, open for one command."""
        folder, url = self.folder(), self.catalog_url()
        from strandline.api import connect

        db = connect(folder, catalog=url, settings=settings_here(), create=create, adopt=adopt)
        try:
            yield db
        except Interrupted as interrupted:
            self.was_late = interrupted.is_late
            raise
        finally:
            db.close()
