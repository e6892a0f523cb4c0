"""State of one command: the shared options, the configuration, the warehouse and the output."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from strandline.cancellation import Interrupted
from strandline.cli.logs import Level, LogForm
from strandline.cli.output import Output
from strandline.errors import InvalidArgument, Unavailable
from strandline.names import MARKER

if TYPE_CHECKING:
    from strandline.api import Database
    from strandline.cli.configuration import Configuration


@dataclass(kw_only=True)
class Cli:
    """One run of the command line. Options after the command override options before it."""

    warehouse: str | None = None
    catalog: str | None = None
    server: str | None = None
    """URL of a service to send the command to, from the command line."""
    token_file: str | None = None
    profile: str | None = None
    assigned: list[str] = field(default_factory=list)
    debug: bool = False
    check: bool = True
    """Whether to check the locations of new backup collections."""
    yes: bool = False
    """Whether to drop backup collections without asking."""
    log_level: Level | None = None
    log_format: LogForm | None = None
    output: Output = field(default_factory=Output)
    was_late: bool = False
    """Whether the command was interrupted after its change was committed."""

    @cached_property
    def configuration(self) -> Configuration:
        """The merged configuration. Read at the first access, when all options are known."""
        from strandline.cli.configuration import is_secret, load

        if self.catalog is not None and _has_password(self.catalog):
            self.output.note(
                "warning: other users of this machine can see a password on the command line; put it into "
                "STRANDLINE_CATALOG_PASSWORD, or set catalog_password_file or _command in strandline.toml"
            )
        if any(map(is_secret, (text.partition("=")[0] for text in self.assigned))):
            self.output.note(
                "warning: other users of this machine can see a secret on the command line; put it below "
                "[spark] in the strandline.toml of your configuration folder"
            )
        given = {
            "warehouse": self.warehouse,
            "catalog": self.catalog,
            "log_level": None if self.log_level is None else self.log_level.value,
            "log_format": None if self.log_format is None else self.log_format.value,
        }
        return load(self.profile, given, self.assigned)

    @property
    def service(self) -> str | None:
        """The URL of the service to send the command to. None: this process opens the warehouse itself."""
        if self.server and (self.warehouse or self.catalog):
            raise InvalidArgument(
                "--server and a warehouse are given", "Give --server URL, or -w FOLDER and --catalog URL."
            )
        if self.server or self.warehouse:
            return self.server
        return os.environ.get("STRANDLINE_SERVER") or None

    def token(self) -> str | None:
        """Return the token for the service."""
        file = self.token_file or os.environ.get("STRANDLINE_TOKEN_FILE")
        if not file:
            return os.environ.get("STRANDLINE_TOKEN")
        try:
            return Path(file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(
                f"the file {file} cannot be read: {error}", "Check its name and its rights."
            ) from None

    def folder(self) -> str:
        """Return the configured warehouse, or the current folder if it is a warehouse."""
        self.configuration.check()
        named = self.warehouse or self.configuration.text("warehouse")
        if named:
            return named
        if Path(MARKER).exists():
            return "."
        raise Unavailable(
            f"no warehouse is configured, and the current folder {Path.cwd()} is not one",
            "Name one with -w FOLDER or STRANDLINE_WAREHOUSE, or create one with strandline init FOLDER.",
        )

    def catalog_url(self) -> str | None:
        """Return the configured catalog URL with its password. None: the SQLite file in the warehouse."""
        return self.configuration.catalog_url()

    @contextmanager
    def database(self, *, create: bool = False, adopt: bool = False) -> Iterator[Database]:
        """Open the warehouse for one command, or the service at ``service``."""
        if (url := self.service) is not None:
            from strandline.api.remote import RemoteDatabase

            # It has the methods of the database that a service offers, and refuses the others.
            yield cast("Database", RemoteDatabase(url, self.token()))
            return
        folder, url, settings = self.folder(), self.catalog_url(), self.configuration.settings()
        from strandline.api import connect

        db = connect(folder, catalog=url, settings=settings, create=create, adopt=adopt)
        try:
            yield db
        except Interrupted as interrupted:
            self.was_late = interrupted.is_late
            raise
        finally:
            db.close()


def _has_password(url: str) -> bool:
    from strandline.errors import mask_urls

    address = url.partition("?")[0]
    return mask_urls(address) != address or "password=" in url.lower()
