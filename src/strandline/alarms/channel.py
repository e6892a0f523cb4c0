"""Channels on which alarms are sent: webhooks, Slack-compatible receivers and mail.

A channel is a group of settings of the process. Secrets are not among them: a setting names the file or the
environment variable that has the secret, and the secret is read for each message.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.headerregistry import Address
from email.utils import getaddresses
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from strandline.alarms.problem import GRADES, Grade
from strandline.errors import InvalidArgument, PreconditionFailed
from strandline.names import did_you_mean
from strandline.settings import Settings
from strandline.storage.user_key import secret_of

ChannelType: TypeAlias = Literal["webhook", "slack", "mail"]
Security: TypeAlias = Literal["starttls", "tls", "none"]

_COMMON = ("type", "level", "ca_file")
_WEB = ("url", "url_file", "url_env", "token_file", "token_env")
_MAIL = ("server", "security", "user", "password_file", "password_env", "sender", "recipients")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "webhook": (*_COMMON, *_WEB),
    "slack": (*_COMMON, *_WEB),
    "mail": (*_COMMON, *_MAIL),
}
"""The settings of each type of channel."""
_PORTS: Mapping[Security, int] = {"starttls": 587, "tls": 465, "none": 25}


@dataclass(frozen=True, kw_only=True)
class Secret:
    """The place of a secret: a file or an environment variable.

    Attributes:
        text: The value itself, of a setting that need not be secret.
    """

    what: str
    text: str | None = field(default=None, repr=False)
    file: str | None = None
    variable: str | None = None

    def read(self) -> str:
        """Return the secret, without spaces and line feeds around it."""
        if self.text is not None:
            return self.text
        found = secret_of(self.what, file=self.file, variable=self.variable, command=None)
        try:
            value = found.decode().strip()
        except UnicodeDecodeError:
            value = ""
        if not value or not value.isprintable():
            raise PreconditionFailed(
                f"{self.what} is empty or not one line of text", "Correct the file or the variable."
            )
        return value


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A channel on which alarms are sent.

    Attributes:
        level: Alarms below this level are not sent.
        ca_file: File with certificates of authorities to trust instead of those of the system.
    """

    name: str
    type: ChannelType
    level: Grade
    ca_file: str | None

    def tls(self) -> ssl.SSLContext:
        """Return the settings of encrypted connections. Certificates and host names are always checked."""
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise PreconditionFailed(
                f"the file {self.ca_file} has no usable certificates: {error.strerror or 'it is not PEM'}",
                f"Correct ca_file of the channel {self.name}.",
            ) from None


@dataclass(frozen=True, kw_only=True)
class WebChannel(Channel):
    """A receiver of HTTP requests.

    Attributes:
        url: Its address, which is often a secret itself.
        token: Token that is sent as ``Authorization: Bearer``. None: no token.
    """

    url: Secret
    token: Secret | None

    def address(self) -> str:
        """Return the checked address."""
        return check_url(self.url.read(), self.name, has_token=self.token is not None)


@dataclass(frozen=True, kw_only=True)
class MailChannel(Channel):
    """A mail server and the recipients of mails.

    Attributes:
        security: ``starttls``: the connection is encrypted before anything else is sent; ``tls``: it is
            encrypted from the start; ``none``: it is not encrypted.
        password: Password of ``user``. None: no login.
    """

    host: str
    port: int
    security: Security
    user: str | None
    password: Secret | None
    sender: str
    recipients: tuple[str, ...]


def read_channels(settings: Settings) -> dict[str, WebChannel | MailChannel]:
    """Return the channels of the settings by name; refuse settings that are unknown or contradict."""
    return {name: _read(name, given) for name, given in settings.channels.items()}


def _read(name: str, given: Mapping[str, str]) -> WebChannel | MailChannel:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise InvalidArgument(
            f"a channel cannot have the name {name!r}", "Use up to 64 letters, digits, '-' and '_'."
        )
    type_ = _choice(name, "type", given.get("type", ""), tuple(_KEYS))
    for key, value in given.items():
        if key not in _KEYS[type_]:
            raise InvalidArgument(
                f"the channel {name} of type {type_} has no setting {key!r}",
                did_you_mean(key, _KEYS[type_]) or f"It has {', '.join(_KEYS[type_])}.",
            )
        if not value.strip() or not value.isprintable():
            raise InvalidArgument(f"{key} of the channel {name} is empty or not one line", "Correct it.")
    level: Grade = "critical" if given.get("level") == "critical" else "warning"
    _choice(name, "level", given.get("level", level), GRADES[1:])
    ca_file = given.get("ca_file")
    if type_ == "mail":
        return _read_mail(name, given, level, ca_file)
    url = _secret(name, given, "url")
    if url is None:
        raise InvalidArgument(f"the channel {name} has no address", "Give one of url, url_file and url_env.")
    channel = WebChannel(
        name=name,
        type="slack" if type_ == "slack" else "webhook",
        level=level,
        ca_file=ca_file,
        url=url,
        token=_secret(name, given, "token"),
    )
    if url.text is not None:
        channel.address()
    return channel


def _read_mail(name: str, given: Mapping[str, str], level: Grade, ca_file: str | None) -> MailChannel:
    for needed in ("server", "sender", "recipients"):
        if needed not in given:
            raise InvalidArgument(f"the channel {name} has no {needed}", f"Set {needed}.")
    security: Security = "starttls"
    for known in _PORTS:
        if known == _choice(name, "security", given.get("security", security), tuple(_PORTS)):
            security = known
    host, port = _server(name, given["server"], _PORTS[security])
    user, password = given.get("user"), _secret(name, given, "password")
    if (user is None) != (password is None):
        raise InvalidArgument(
            f"the channel {name} has only one of user and password",
            "A login needs user, and password_file or password_env.",
        )
    if password is not None and security == "none" and not is_loopback(host):
        raise InvalidArgument(
            f"the channel {name} would send its password unencrypted",
            "Set security to starttls or tls, or leave user and password out.",
        )
    return MailChannel(
        name=name,
        type="mail",
        level=level,
        ca_file=ca_file,
        host=host,
        port=port,
        security=security,
        user=user,
        password=password,
        sender=_addresses(name, "sender", given["sender"])[0],
        recipients=_addresses(name, "recipients", given["recipients"]),
    )


def _secret(name: str, given: Mapping[str, str], key: str) -> Secret | None:
    there = [k for k in (key, f"{key}_file", f"{key}_env") if k in given]
    if len(there) > 1:
        raise InvalidArgument(f"the channel {name} has both {there[0]} and {there[1]}", "Keep one of them.")
    if not there:
        return None
    file = given.get(f"{key}_file")
    return Secret(
        what=f"the {key} of the channel {name}",
        text=given.get(key),
        file=None if file is None else os.path.expanduser(file),
        variable=given.get(f"{key}_env"),
    )


def check_url(url: str, name: str, *, has_token: bool) -> str:
    """Refuse an address to which no alarm can or should be sent. The error does not show the address."""
    hint = f"Correct the url of the channel {name}: it is https://host/path."
    try:
        found = urlsplit(url)
        port, host = found.port, found.hostname
    except ValueError:
        raise InvalidArgument(f"the url of the channel {name} is not a URL", hint) from None
    if found.scheme not in ("http", "https") or not host or not url.isascii() or " " in url or port == 0:
        raise InvalidArgument(f"the url of the channel {name} is not a URL with http:// or https://", hint)
    if found.username is not None or found.password is not None:
        raise InvalidArgument(
            f"the url of the channel {name} has a user or a password",
            "Leave them out, and name a token with token_file or token_env.",
        )
    if has_token and found.scheme == "http" and not is_loopback(host):
        raise InvalidArgument(f"the channel {name} would send its token unencrypted", "Use https://.")
    return url


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _server(name: str, text: str, port: int) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?", text.strip())
    number = port if found is None or found[2] is None else int(found[2])
    if found is None or not 0 < number < 65536:
        raise InvalidArgument(
            f"the server of the channel {name} cannot be {text!r}",
            "Write host:port, such as smtp.example.org:587.",
        )
    return found[1].strip("[]"), number


def _addresses(name: str, key: str, text: str) -> tuple[str, ...]:
    found = []
    for shown, address in getaddresses([text]):
        try:
            found.append(str(Address(shown, addr_spec=address)))
        except (ValueError, IndexError):
            found.append("")
    if not found or not all("@" in each for each in found) or (key == "sender" and len(found) > 1):
        raise InvalidArgument(
            f"{key} of the channel {name} cannot be {text!r}", "Write addresses such as ada@example.org."
        )
    return tuple(found)


def _choice(name: str, key: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidArgument(
            f"{key} of the channel {name} cannot be {value!r}", f"It is one of {', '.join(choices)}."
        )
    return value
