"""Read the user's key of an encrypted repository from a file, an environment variable or a command.

The command may, for example, ask a key service. Error messages never contain the data that was read.
"""

from __future__ import annotations

import base64
import binascii
import os
import shlex
import subprocess

from strandline.errors import InvalidArgument, PreconditionFailed, TimedOut, Unavailable
from strandline.settings import Settings
from strandline.storage.keyring import KEY_BYTES, UserKey

__all__ = ["secret_of", "user_key"]

COMMAND_SECONDS = 60.0
"""Maximum run time of the command that prints the key."""


def user_key(settings: Settings) -> UserKey:
    """Return the key that the settings name."""
    file, variable, command = (
        settings.repository_key_file,
        settings.repository_key_env,
        settings.repository_key_command,
    )
    if sum(place is not None for place in (file, variable, command)) != 1:
        number = "more than one key is" if file or variable or command else "no key is"
        raise PreconditionFailed(
            f"this repository is encrypted and {number} configured",
            "Set one of STRANDLINE_REPOSITORY_KEY_FILE, STRANDLINE_REPOSITORY_KEY_ENV and "
            "STRANDLINE_REPOSITORY_KEY_COMMAND, or the setting of the same name in lower case, such as "
            "repository_key_file.",
        )
    what = "the repository's key"
    place = (
        f"the file {file}" if file else f"the variable {variable}" if variable else f"the command for {what}"
    )
    return _parse_key(secret_of(what, file=file, variable=variable, command=command), place)


def secret_of(what: str, *, file: str | None, variable: str | None, command: str | None) -> bytes:
    """Return the secret from a file, an environment variable or a command.

    The caller gives one of ``file``, ``variable`` and ``command``; the other two are None.

    Args:
        what: what the secret is, for error messages.
        file: the path of the file.
        variable: the name of the environment variable.
        command: the command that prints the secret.
    """
    if file is not None:
        return _from_file(what, file)
    if variable is not None:
        return _from_environment(what, variable)
    return _from_command(what, command or "")


def _parse_key(data: bytes, place: str) -> UserKey:
    text = data.strip()
    # 64 hex digits are also valid base64, but decode to 48 bytes.
    for decode in (binascii.unhexlify, _base64):
        try:
            if len(key := decode(text)) == KEY_BYTES:
                return UserKey(key)
        except ValueError:
            continue
    raise InvalidArgument(
        f"{place} does not give {KEY_BYTES} bytes in base64 or hex",
        "Create a key with: openssl rand -base64 32. A passphrase is not accepted.",
    )


def _base64(text: bytes) -> bytes:
    return base64.b64decode(text, validate=True)


def _from_file(what: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(4096)
    except OSError as error:
        raise PreconditionFailed(
            f"{what} cannot be read from the file {path}: {error.strerror}",
            "Check the setting that names the file, and that this process may read it.",
        ) from None


def _from_environment(what: str, variable: str) -> bytes:
    if not (found := os.environ.get(variable)):
        raise PreconditionFailed(
            f"the variable {variable}, which should hold {what}, is not set",
            "Set it, or check the setting that has the name of the variable.",
        )
    return os.fsencode(found)


def _from_command(secret: str, command: str) -> bytes:
    what = f"the command for {secret}"
    hint = "Run it by hand to see why; what it prints is not shown here, as it may be the secret."
    try:
        done = subprocess.run(
            shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise TimedOut(f"{what} has not ended after {COMMAND_SECONDS:g} seconds", hint) from None
    except (OSError, ValueError, IndexError) as error:
        reason = getattr(error, "strerror", None) or "it is not a command"
        raise PreconditionFailed(
            f"{what} cannot be run: {reason}",
            "Check the setting that has it. It is run without a shell.",
        ) from None
    if done.returncode != 0:
        raise Unavailable(f"{what} failed with exit code {done.returncode}", hint)
    return done.stdout
