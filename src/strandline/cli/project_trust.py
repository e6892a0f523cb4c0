"""Decides whether the configuration file of the current folder is used, and which of its settings.

A user who can write this file controls what the next command in the folder does. Three rules, as in git, ssh
and direnv:

1. The file and its folder must belong to the user or to root, and no other user may write to them. The folder
   may be writable if it is sticky, as /tmp is. Otherwise the file is refused.
2. A setting that runs programs or decides where secrets are sent (``danger``) needs ``strandline trust``.
3. ``strandline trust`` records a file by its path and the hash of its content. A recorded file is used,
   regardless of its owner, until its content changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from strandline.errors import PathNotFound, PreconditionFailed, StrandlineError, Unavailable

_HARMLESS_STORAGE = frozenset({"access_key_id", "secret_access_key", "session_token"})
"""Object store options that cannot send secrets of the environment to another server."""
_REGION = re.compile(r"[a-z0-9-]*", re.ASCII | re.IGNORECASE)
"""Pattern of harmless names of a region.

The region is part of the server's address, so other texts could name another server.
"""
_HARMLESS_PARAMETERS = frozenset({"application_name", "connect_timeout", "sslmode"})
"""Parameters of a catalog URL that name neither servers nor files."""
_FORMAT = 1
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, kw_only=True)
class Trusted:
    """A record of ``strandline trust``.

    Attributes:
        digest: the SHA-256 of the file's content.
        since: when the content was trusted, in seconds since the epoch.
    """

    digest: str
    since: float


@dataclass(frozen=True, kw_only=True)
class ProjectFile:
    """A configuration file that was read.

    Attributes:
        path: its real path.
        owner_problem: why another user could have written the file. None: no other user could write it.
        trusted: the record of ``strandline trust`` for its path. None: there is no record.
    """

    path: str
    content: bytes
    owner_problem: str | None
    trusted: Trusted | None

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def is_trusted(self) -> bool:
        return self.trusted is not None and self.trusted.digest == self.digest

    def refusal(self) -> StrandlineError | None:
        """Return the error if the whole file is refused, else None."""
        if self.is_trusted or self.owner_problem is None:
            return None
        return PreconditionFailed(
            f"{self.path} is not used: {self.owner_problem}",
            "Remove the access of others: chown the file and its folder to yourself, and chmod go-w both. Or "
            f"read it, and allow its present content with: strandline trust {shlex.quote(self.path)}",
        )

    def refusal_of_settings(self, values: Mapping[str, Any], profile: str | None) -> StrandlineError | None:
        """Return the error if the file sets a value that needs trust, but is not trusted; else None.

        Args:
            values: the effective settings that come from the file.
            profile: the profile that sets them. None: they are outside of profiles.
        """
        if self.is_trusted:
            return None
        dangers = {name: why for name, value in values.items() if (why := danger(name, value))}
        if not dangers:
            return None
        name, why = next(iter(dangers.items()))
        known = "has changed since it was trusted" if self.trusted else "is not trusted"
        others = f" (and {len(dangers) - 1} more)" if len(dangers) > 1 else ""
        where = f"{self.path}, line {self._line(name, profile)}"
        return PreconditionFailed(
            f"{where}, sets {name}{others}, and the file {known}: {why}",
            f"Read the file, then allow its present content with: strandline trust {shlex.quote(self.path)}",
        )

    def _line(self, name: str, profile: str | None) -> int:
        lines = self.content.decode("utf-8", "replace").splitlines()
        key = re.escape(
            name.rsplit(".", 1)[1] if name.startswith("channels.") else name.removeprefix("storage.")
        )
        sets = re.compile(rf"(?:^|[\s{{,.\"'])[\"']?{key}[\"']?\s*=")
        begin = 0
        if profile is not None:
            header = re.compile(rf"\s*\[\s*profiles\s*\.\s*[\"']?{re.escape(profile)}\b")
            begin = next((at for at, line in enumerate(lines) if header.match(line)), 0)
        found = (at for at, line in enumerate(lines[begin:], begin + 1) if sets.search(line))
        return next(found, begin + 1)


def danger(name: str, value: Any) -> str | None:
    """Return the damage that a setting from an attacker could do; None if it is harmless."""
    if name.endswith("_command"):
        return "it is run as a program"
    if name.startswith("spark."):
        return "options of Spark can run programs and send credentials elsewhere"
    if name.startswith("catalog_password_"):
        return "it decides which secret is sent to the catalog"
    if name == "catalog" and _is_server(str(value)):
        return _danger_of_server(str(value))
    if name.startswith("storage.") and not _is_harmless_storage(name.removeprefix("storage."), value):
        return "it can send your credentials to another server"
    if name.startswith("channels."):
        return "it decides where alarms are sent, and with which of your secrets"
    if name.startswith("repository_key_"):
        return "it decides with which key backups are encrypted"
    return None


def _is_harmless_storage(name: str, value: Any) -> bool:
    if name == "region":
        return _REGION.fullmatch(str(value)) is not None
    return name in _HARMLESS_STORAGE


def _is_server(url: str) -> bool:
    return "://" in url and not url.startswith("sqlite")


def _danger_of_server(url: str) -> str | None:
    password = "your password for the catalog would be sent there"
    try:
        parts = urlsplit(url)
        if not parts.password:
            return password
    except ValueError:
        return password
    parameters = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if parts.fragment or not parameters <= _HARMLESS_PARAMETERS:
        return "parameters of its URL can name other servers, and files that are read or written"
    return None


def read_project_file(path: Path) -> ProjectFile | None:
    """Check and read the file through one handle; return None if it is missing or not a regular file."""
    try:
        # O_NONBLOCK: a pipe in its place must not block the command.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAIT)) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                return None
            problem, content = _owner_problem(path, about), file.read()
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}", "Check its rights.") from None
    real = os.path.realpath(path)
    return ProjectFile(path=real, content=content, owner_problem=problem, trusted=list_trusted().get(real))


def _owner_problem(path: Path, about: os.stat_result) -> str | None:
    """Return why another user could have written or replaced the file; None if that is impossible."""
    if not hasattr(os, "getuid"):
        return None  # Windows has no such ownership.
    link, folder = os.lstat(path), os.stat(os.path.dirname(path) or ".")
    if stat.S_ISLNK(link.st_mode) and not _is_own(link):
        return f"the link belongs to {_user(link.st_uid)}"
    for what, found in (("it", about), ("its folder", folder)):
        if not _is_own(found):
            return f"{what} belongs to {_user(found.st_uid)}"
        if what != "it" and found.st_mode & stat.S_ISVTX:
            continue  # Sticky: only the owner of a file may rename or remove it.
        if found.st_mode & stat.S_IWOTH:
            return f"other users can write to {what}"
        if found.st_mode & stat.S_IWGRP and not _is_private_group(found.st_gid):
            return f"other users can write to {what}, as members of the group {_group(found.st_gid)}"
    return None


def _is_own(about: os.stat_result) -> bool:
    return about.st_uid in (os.getuid(), 0)


def _is_private_group(gid: int) -> bool:
    """Return whether a group is private to the user: primary, named like the user, no other members."""
    import grp
    import pwd

    with suppress(KeyError):
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(gid)
        return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    return False


def _user(uid: int) -> str:
    import pwd

    with suppress(KeyError):
        return f"the user {pwd.getpwuid(uid).pw_name}"
    return f"the user {uid}"


def _group(gid: int) -> str:
    import grp

    with suppress(KeyError):
        return grp.getgrgid(gid).gr_name
    return str(gid)


# --- trusted files -----------------------------------------------------------------------------------------


def list_trusted() -> dict[str, Trusted]:
    """Return the recorded files by their real paths."""
    try:
        with open(_records(), "rb") as file:
            if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                return {}  # The file is in the home of another user, as after sudo.
            files = json.loads(file.read())["files"]
            return {path: Trusted(**found) for path, found in files.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Unavailable(f"{_records()} cannot be read: {error.strerror}", "Check its rights.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PreconditionFailed(
            f"{_records()} is damaged", "Remove it, and run strandline trust again for your files."
        ) from None


def trust(file: ProjectFile) -> None:
    """Record the file with its present content."""
    _write({**list_trusted(), file.path: Trusted(digest=file.digest, since=time.time())})


def forget(path: str) -> None:
    """Remove the record of a file."""
    found = list_trusted()
    if path not in found:
        raise PathNotFound(f"{path} is not trusted", "See which files are with strandline trust --list.")
    del found[path]
    _write(found)


def _records() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base, "strandline", "trusted.json")


def _write(trusted: Mapping[str, Trusted]) -> None:
    place = _records()
    files = {path: vars(found) for path, found in sorted(trusted.items())}
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump({"format": _FORMAT, "files": files}, file, indent=1)
        os.replace(fresh, place)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        raise Unavailable(
            f"{place} cannot be written: {error.strerror}", "Check the rights and the free space there."
        ) from None
