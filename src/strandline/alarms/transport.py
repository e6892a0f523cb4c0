"""Send a message on a channel, within a time limit.

Errors name the host of a receiver and never its path, because the address of a webhook is often a secret.
"""

from __future__ import annotations

import http.client
import smtplib
import urllib.error
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from strandline.alarms.channel import Channel, MailChannel, WebChannel
from strandline.alarms.message import AlarmMessage
from strandline.clock import SystemClock
from strandline.errors import StrandlineError, TimedOut, Unavailable
from strandline.threads import within
from strandline.version import VERSION

SECONDS = 10.0
"""Time limit for each step of a request: to connect, and to wait for the next bytes."""
TOTAL_SECONDS = 30.0
"""Time limit for sending a message."""
_READ = 1000
"""Maximum number of characters of an answer that are read."""


def send(channel: Channel, message: AlarmMessage) -> str:
    """Send a message, and return what the receiver answered.

    Raise UNAVAILABLE if the receiver did not accept the message. Raise TIMEOUT if it did not answer in time:
    the message may have arrived.
    """

    def work() -> str:
        if isinstance(channel, MailChannel):
            return _send_mail(channel, message)
        assert isinstance(channel, WebChannel)
        return _post(channel, message)

    try:
        return within(
            SystemClock(),
            TOTAL_SECONDS,
            work,
            name="strandline-alarm",
            what=f"the receiver of the channel {channel.name}",
        )
    except TimedOut as error:
        error.hint = (
            f"Check the channel with: strandline alarms test {channel.name}. Messages are sent again."
        )
        raise
    except StrandlineError:
        raise
    except Exception as error:  # Whatever the receiver sent, it is not worth more than this message.
        raise _failed(channel, type(error).__name__) from None


def _failed(channel: Channel, why: str, error: object = None) -> Unavailable | TimedOut:
    kind = TimedOut if isinstance(error, TimeoutError) else Unavailable
    return kind(
        f"the channel {channel.name} failed: {why}",
        f"Check the channel with: strandline alarms test {channel.name}. Messages are sent again.",
    )


# --- webhooks -----------------------------------------------------------------------------------------------


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses to follow redirects: a message goes to the configured address only."""

    def redirect_request(self, *given: Any, **named: Any) -> None:
        return None


def _post(channel: WebChannel, message: AlarmMessage) -> str:
    url = channel.address()
    token = None if channel.token is None else channel.token.read()
    secrets = [text for text in (url, urlsplit(url).path.strip("/"), urlsplit(url).query, token) if text]
    body = message.as_chat() if channel.type == "slack" else message.as_json()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"strandline/{VERSION}",
        "Idempotency-Key": message.key,
    }
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, body, headers, method="POST")
    opener = urllib.request.build_opener(_NoRedirects(), urllib.request.HTTPSHandler(context=channel.tls()))
    host = urlsplit(url).hostname
    try:
        with opener.open(request, timeout=SECONDS) as answer:
            return _shown(f"{answer.status} {answer.reason}", answer, secrets)
    except urllib.error.HTTPError as error:
        with error:
            if 300 <= error.code < 400:
                why = f"{host} answered {error.code}, a redirect, which is not followed"
                raise _failed(channel, why) from None
            raise _failed(channel, f"{host} answered {_shown(str(error.code), error, secrets)}") from None
    except urllib.error.URLError as error:
        raise _failed(channel, f"{host} cannot be reached ({_reason(error.reason)})", error.reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise _failed(channel, f"{host} cannot be reached ({_reason(error)})", error) from None


def _shown(status: str, answer: Any, secrets: Iterable[str]) -> str:
    """Return the status and the beginning of an answer as one line, without secrets."""
    try:
        text = answer.read(_READ).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        text = ""
    for secret in secrets:
        if len(secret) > 3:
            text = text.replace(secret, "***")
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return f"{status}: {text[:200]}" if text else status


def _reason(error: object) -> str:
    """Return why a connection failed, in a few words."""
    if isinstance(error, TimeoutError):
        return f"no answer within {SECONDS:g} seconds"
    strerror = getattr(error, "strerror", None)
    return str(strerror or getattr(error, "reason", None) or type(error).__name__)[:200]


# --- mail ---------------------------------------------------------------------------------------------------


def _send_mail(channel: MailChannel, message: AlarmMessage) -> str:
    mail = message.as_mail(channel)
    host = channel.host
    try:
        server = _connect(channel)
        try:
            _log_in(channel, server)
            refused = server.send_message(mail)
            with suppress(smtplib.SMTPException, OSError):  # The mail is accepted already.
                server.quit()
        finally:
            server.close()
    except smtplib.SMTPRecipientsRefused as error:
        raise _failed(channel, f"{host} refused {', '.join(error.recipients)}") from None
    except smtplib.SMTPResponseException as error:
        raise _failed(channel, f"{host} answered {error.smtp_code}") from None
    except smtplib.SMTPException as error:
        raise _failed(channel, f"{host} does not do what is needed ({type(error).__name__})") from None
    except OSError as error:
        raise _failed(channel, f"{host} cannot be reached ({_reason(error)})", error) from None
    accepted = len(channel.recipients) - len(refused)
    return f"accepted for {accepted} of {len(channel.recipients)} recipients"


def _log_in(channel: MailChannel, server: smtplib.SMTP) -> None:
    if channel.user is None or channel.password is None:
        return
    try:
        server.login(channel.user, channel.password.read())
    except (smtplib.SMTPAuthenticationError, smtplib.SMTPServerDisconnected):
        raise _failed(channel, f"{channel.host} refused the login of {channel.user}") from None


def _connect(channel: MailChannel) -> smtplib.SMTP:
    """Connect to the mail server; encrypt the connection before anything else is sent."""
    if channel.security == "tls":
        return smtplib.SMTP_SSL(channel.host, channel.port, timeout=SECONDS, context=channel.tls())
    server = smtplib.SMTP(channel.host, channel.port, timeout=SECONDS)
    try:
        if channel.security == "starttls":
            server.starttls(context=channel.tls())
    except BaseException:
        server.close()
        raise
    return server
