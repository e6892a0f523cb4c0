"""The configuration of a command, merged from files, environment variables and the command line.

Later sources override earlier ones:

1. ``strandline.toml`` in the user's configuration folder
2. ``strandline.toml`` in the current folder, as far as ``project_trust`` allows it
3. the selected profile in either file
4. ``STRANDLINE_*`` environment variables
5. the command line
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from strandline.cli.project_trust import ProjectFile, danger, read_project_file
from strandline.errors import InvalidArgument, PreconditionFailed, StrandlineError, Unavailable
from strandline.names import did_you_mean
from strandline.settings import Settings

FILE = "strandline.toml"
PASSWORDS = ("catalog_password_file", "catalog_password_env", "catalog_password_command")
"""Settings that say where the catalog's password comes from.

A source that sets one of these settings, or the catalog, overrides all of them from earlier sources.
"""
PASSWORD = "STRANDLINE_CATALOG_PASSWORD"
"""Environment variable with the catalog's password."""
PLAIN = ("warehouse", "catalog", *PASSWORDS, "log_level", "log_format")
"""Settings with a plain text value. In a configuration file they are outside of any section."""
SECTIONS = {
    "settings": "settings",
    "spark": "spark",
    "storage": "storage_options",
    "channels": "channels",
}
"""Sections of a configuration file, and the field of ``Settings`` that each one fills.

The section ``settings`` fills all other fields.
"""
COMMANDS = ("catalog_password_command", "repository_key_command")
"""Settings that are run as programs. They are never read from a file that other users can write."""
_TYPES = {f.name: f.type for f in fields(Settings) if f.name not in ("spark", "storage_options", "channels")}
_SPARK = {"spark.executorEnv.PYTHONSAFEPATH": "1"}
"""Keeps Spark workers from importing modules of the current folder.

Commands run no user functions, so they need no such modules.
"""
_SECRET = ("secret", "password", "token", "key", "credential", "sas", "signature")


@dataclass(frozen=True)
class Value:
    """A value and its source."""

    value: Any
    source: str


@dataclass
class Configuration:
    """The merged configuration of one command.

    Attributes:
        profile: the name of the selected profile, with its source. None: no profile is selected.
        files: the configuration files that were read.
        values: values by name. The names are those of ``PLAIN`` and of settings, ``spark.x``,
            ``storage.x`` and ``channels.NAME.x``.
        refusal: the reason why the file of the current folder must not be used. None: it may be used, or
            there is no such file.
    """

    profile: Value | None = None
    files: list[str] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    refusal: StrandlineError | None = None

    def check(self) -> None:
        """Raise if the file of the current folder is not trusted."""
        if self.refusal is not None:
            raise self.refusal

    def text(self, name: str) -> str | None:
        found = self.values.get(name)
        return None if found is None else str(found.value)

    def settings(self) -> Settings:
        """Return the settings for ``connect``."""
        self.check()
        return self.read_settings()

    def read_settings(self) -> Settings:
        """Return the settings without the trust check, to display them."""
        given = {name: v.value for name, v in self.values.items() if name in _TYPES}
        for section, name in (("spark.", "spark"), ("storage.", "storage_options")):
            of = {n: str(v.value) for n, v in self.values.items() if n.startswith(section)}
            given[name] = (
                _SPARK | of if name == "spark" else {n.removeprefix(section): v for n, v in of.items()}
            )
        given["channels"] = self._channels()
        try:
            return Settings(**given)
        except StrandlineError as error:
            from_ = ", ".join(sorted({v.source for n, v in self.values.items() if n in error.message}))
            raise InvalidArgument(
                f"{error.message} ({from_})" if from_ else error.message, error.hint
            ) from None

    def _channels(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for name, value in self.values.items():
            if name.startswith("channels."):
                _, channel, key = name.split(".", 2)
                found.setdefault(channel, {})[key] = str(value.value)
        return found

    def catalog_url(self) -> str | None:
        """Return the URL of the catalog, with its password if it needs one.

        None means the SQLite file in the warehouse.
        """
        self.check()
        url = self.text("catalog")
        if url is None or "://" not in url or url.startswith("sqlite"):
            return url
        from strandline.catalog.engines import has_password, with_password

        password = None if has_password(url) else os.environ.get(PASSWORD) or self._password()
        return url if password is None else with_password(url, password)

    def _password(self) -> str | None:
        from strandline.storage.user_key import secret_of

        file, variable, command = (self.text(name) for name in PASSWORDS)
        if file is None and variable is None and command is None:
            return None
        found = secret_of("the catalog's password", file=file, variable=variable, command=command)
        return found.decode("utf-8").rstrip("\r\n")


def display_value(name: str, value: Any) -> str:
    """Return a value for display, with secrets masked."""
    from strandline.errors import mask_urls

    if name in COMMANDS:
        return "(a command)"
    return "***" if is_secret(name) else mask_urls(str(value))


def is_secret(name: str) -> bool:
    """Return whether the value of a Spark or object store option, or of a channel, is secret."""
    if name.startswith("channels."):
        return name.endswith(".url")
    return name.startswith(("spark.", "storage.")) and any(word in name.lower() for word in _SECRET)


def load(profile: str | None, given: Mapping[str, str | None], assigned: Sequence[str] = ()) -> Configuration:
    """Merge configuration files, environment variables and command-line options.

    Args:
        profile: the value of ``--profile``.
        given: values of other options by name.
        assigned: the ``NAME=VALUE`` texts of ``--set``.
    """
    found = Configuration()
    user, project = _user_file(), read_project_file(Path(FILE))
    found.refusal = None if project is None else project.refusal()
    read: list[tuple[str, dict[str, Any], Path]] = []
    if user.is_file():
        read.append((str(user), _parse(_read(user), user), user))
    if project is not None and found.refusal is None:
        read.append((FILE, _parse(project.content, Path(FILE)), Path(FILE)))
    found.files = [name for name, _, _ in read]
    found.profile = _profile(profile, read)
    profiles: set[str] = set()
    layers: list[tuple[str, dict[str, Any], Path]] = []
    for name, content, path in read:
        own = {key: value for key, value in content.items() if key not in ("profile", "profiles")}
        layers.append((name, own, path))
    for name, content, path in read:
        of = content.get("profiles", {})
        profiles |= set(of)
        if found.profile is not None and found.profile.value in of:
            layers.append((f"{name}, profile {found.profile.value}", of[found.profile.value], path))
    if found.profile is not None and found.profile.value not in profiles:
        found.check()
        raise InvalidArgument(
            f"there is no profile {found.profile.value!r} ({found.profile.source})",
            did_you_mean(found.profile.value, profiles)
            or (f"There are {', '.join(sorted(profiles))}." if profiles else f"Write one into {FILE}."),
        )
    for source, content, path in layers:
        flat = dict(_flat(content, source, path))
        for key in COMMANDS:
            if path == user and key in flat:
                _check_own(path, key)
        _take(found, flat, source)
    _take(found, dict(_environment()), None)
    _take(found, {name: value for name, value in given.items() if value is not None}, "command line")
    _take(found, dict(map(_assignment, assigned)), "command line")
    if project is not None and found.refusal is None:
        found.refusal = _refusal_of_settings(found, project)
    return found


def _refusal_of_settings(found: Configuration, project: ProjectFile) -> StrandlineError | None:
    """Return the error if a setting from the current folder's file is refused, else None.

    Only effective settings count. They may be set outside of profiles, or in the selected profile.
    """
    named = None if found.profile is None else str(found.profile.value)
    for source, profile in ((FILE, None), (f"{FILE}, profile {named}", named)):
        decided = {name: v.value for name, v in found.values.items() if v.source == source}
        refusal = project.refusal_of_settings(decided, profile)
        if refusal is not None:
            return refusal
    return None


def dangers_of(project: ProjectFile) -> list[tuple[str, str]]:
    """Return the settings of a file and all of its profiles that need trust, each with the reason."""
    path = Path(project.path)
    content = _parse(project.content, path)
    own = {key: value for key, value in content.items() if key not in ("profile", "profiles")}
    layers = {"": own, **{f" (profile {name})": of for name, of in content.get("profiles", {}).items()}}
    return [
        (f"{name}{where}", why)
        for where, layer in layers.items()
        for name, value in _flat(layer, f"{path}{where}", path)
        if (why := danger(name, value))
    ]


def _take(found: Configuration, values: Mapping[str, Any], source: str | None) -> None:
    # A password must not be sent to another catalog. So a source that sets the catalog, or one of PASSWORDS,
    # removes all of PASSWORDS that earlier sources have set.
    if any(name in values for name in ("catalog", *PASSWORDS)):
        found.values = {name: value for name, value in found.values.items() if name not in PASSWORDS}
    for name, value in values.items():
        found.values[name] = Value(value, source or f"STRANDLINE_{name.upper()}")


def _user_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base, "strandline", FILE)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}", "Check its rights.") from None


def _parse(text: bytes, path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content: dict[str, Any] = tomllib.loads(text.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} is not valid TOML: {error}", "Correct it, or remove it.") from None
    _check_names(content, path)
    return content


def _check_names(content: dict[str, Any], path: Path) -> None:
    """Refuse names with control characters: printed on a terminal, they could hide other names."""
    for key, value in content.items():
        if not key.isprintable():
            raise InvalidArgument(f"{path} has a name with control characters: {key!r}", "Correct the file.")
        if isinstance(value, dict):
            _check_names(value, path)


def _profile(named: str | None, read: Sequence[tuple[str, dict[str, Any], Path]]) -> Value | None:
    if named:
        return Value(named, "command line")
    if text := os.environ.get("STRANDLINE_PROFILE"):
        return Value(text, "STRANDLINE_PROFILE")
    for name, content, _ in reversed(read):
        if "profile" in content:
            return Value(_a_text("profile", content["profile"], name), name)
    return None


def _flat(content: Any, source: str, path: Path) -> Iterator[tuple[str, Any]]:
    if not isinstance(content, dict):
        raise InvalidArgument(f"a profile is a table ({source})", "Write [profiles.NAME] and its keys below.")
    for key, value in content.items():
        if key in SECTIONS:
            if not isinstance(value, dict):
                raise InvalidArgument(f"{key} is a table ({source})", f"Write [{key}] and its keys below.")
            yield from _section(key, value, source, path)
        elif key in PLAIN:
            text = _a_text(key, value, source)
            yield key, _resolve_folder(text, path) if key in ("warehouse", "catalog_password_file") else text
        else:
            if key in _TYPES:
                raise InvalidArgument(f"{key} is a setting ({source})", "Write it below [settings].")
            raise _unknown(key, (*PLAIN, *SECTIONS, "profile", "profiles"), source)


def _section(section: str, content: dict[str, Any], source: str, path: Path) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if section == "settings":
            if key not in _TYPES:
                raise _unknown(key, _TYPES, source)
            yield key, value
            continue
        if section == "channels":
            yield from _channel(key, value, source, path)
            continue
        if isinstance(value, dict):
            raise InvalidArgument(
                f"{section}.{key} is not a text ({source})", f'Put names with a dot into quotes: "{key}...".'
            )
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if section == "spark" and not key.startswith("spark."):
            raise InvalidArgument(
                f"{key!r} is not an option of Spark ({source})",
                f'Write its full name: "spark.{key}" = "{text}".',
            )
        yield key if section == "spark" else f"storage.{key}", text


def _channel(name: str, content: Any, source: str, path: Path) -> Iterator[tuple[str, Any]]:
    if not isinstance(content, dict) or "." in name:
        raise InvalidArgument(
            f"channels.{name} is not a channel ({source})", "Write [channels.NAME] and its settings below."
        )
    for key, value in content.items():
        text = _a_text(key, value, source)
        yield f"channels.{name}.{key}", _resolve_folder(text, path) if key.endswith("_file") else text


def _environment() -> Iterator[tuple[str, Any]]:
    for name in (*PLAIN, *_TYPES):
        if text := os.environ.get(f"STRANDLINE_{name.upper()}"):
            yield name, _parse_value(name, text, f"STRANDLINE_{name.upper()}")


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals:
        raise InvalidArgument(f"{text!r} is not NAME=VALUE", "Write --set workers=8.")
    if name.startswith("spark.") or (name.startswith("channels.") and name.count(".") == 2):
        return name, value
    if name not in _TYPES:
        raise _unknown(name, _TYPES, "command line")
    return name, _parse_value(name, value, "command line")


def _parse_value(name: str, text: str, source: str) -> Any:
    kind = {"int": int, "float": float, "float | None": float}.get(str(_TYPES.get(name)), str)
    try:
        return kind(text)
    except ValueError:
        raise InvalidArgument(f"the setting {name} cannot be {text!r} ({source})", "Give a number.") from None


def _a_text(name: str, value: Any, source: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"{name} is not a text ({source})", f'Write {name} = "...".')
    return value


def _resolve_folder(text: str, path: Path) -> str:
    """Resolve a folder in a configuration file relative to that file."""
    expanded = os.path.expanduser(text)
    return expanded if "://" in text or os.path.isabs(expanded) else str(path.parent / expanded)


def _check_own(path: Path, key: str) -> None:
    about = path.stat()
    if about.st_uid not in (os.getuid(), 0) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PreconditionFailed(
            f"{path} has a {key}, and other users can write to it",
            f"Only you may choose a program to run: chown the file to yourself, and chmod go-w {path}.",
        )


def _unknown(key: str, known: Iterable[str], source: str) -> InvalidArgument:
    names = list(known)
    return InvalidArgument(
        f"unknown setting {key!r} ({source})",
        did_you_mean(key, names) or f"Known names: {', '.join(names)}.",
    )
