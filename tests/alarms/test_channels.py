"""Channels: mail with and without encryption, HTTPS, and settings that are refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from strandline import Alarm, Database, Settings
from strandline.alarms.channel import MailChannel, read_channels
from strandline.alarms.message import AlarmMessage, Item
from strandline.api.alarms import board_of
from strandline.errors import InvalidArgument, PreconditionFailed
from tests.alarms.receivers import MailReceiver, WebReceiver
from tests.catalogs import ManualClock

HOUR = 3600.0
Opened = Callable[..., Database]


def mail_settings(receiver: MailReceiver, **more: str) -> Settings:
    host = "localhost" if receiver.authority else "127.0.0.1"
    channel = {
        "type": "mail",
        "server": f"{host}:{receiver.port}",
        "security": "none",
        "sender": "strandline@example.org",
        "recipients": "Ada <ada@example.org>, bob@example.org",
        **({"ca_file": str(receiver.authority)} if receiver.authority else {}),
        **more,
    }
    return Settings(channels={"mail": channel})


def tried(opened: Opened, settings: Settings, name: str = "mail") -> tuple[str | None, str | None]:
    sent = board_of(opened(settings=settings)).test(name)
    return sent.answer, sent.error


def test_a_mail_about_an_alarm(opened: Opened, mail: MailReceiver, clock: ManualClock) -> None:
    db = opened(settings=mail_settings(mail))
    db.sql("""CREATE TABLE t (k Int64, PRIMARY KEY (k));
              CREATE BACKUP COLLECTION `nächtlich` (TABLE t) WITH (STORAGE = 'cluster')""")
    (sent,) = board_of(db).tick()
    assert (sent.answer, sent.error) == ("accepted for 2 of 2 recipients", None)
    (found,) = mail.mails
    assert found["Subject"] == "Strandline: critical: nächtlich: it has no backup"
    assert (found["From"], found["To"]) == (
        "strandline@example.org",
        "Ada <ada@example.org>, bob@example.org",
    )
    assert found["Message-ID"] == f"<{found['X-Strandline-Key']}@strandline.invalid>"
    assert mail.to == [["ada@example.org", "bob@example.org"]]
    text = found.get_payload(decode=True)
    assert isinstance(text, bytes)
    assert text.decode().splitlines()[:2] == [
        "critical: nächtlich: it has no backup",
        "    Take one: BACKUP `nächtlich`.",
    ]


@pytest.mark.parametrize("implicit", [False, True])
def test_an_encrypted_login(
    opened: Opened, stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, implicit: bool
) -> None:
    receiver = MailReceiver(tmp_path / "tls", implicit=implicit, login=("ada", "s3cr3t"))
    stack.enter_context(receiver)
    security = "tls" if implicit else "starttls"
    monkeypatch.setenv("SMTP_PASSWORD", "s3cr3t")
    login = {"user": "ada", "password_env": "SMTP_PASSWORD", "security": security}
    assert tried(opened, mail_settings(receiver, **login)) == ("accepted for 2 of 2 recipients", None)
    assert receiver.logins == [("ada", "s3cr3t")] and len(receiver.mails) == 1
    monkeypatch.setenv("SMTP_PASSWORD", "wrong-s3cr3t")
    answer, error = tried(opened, mail_settings(receiver, **login))
    assert answer is None and error == "the channel mail failed: localhost refused the login of ada"
    del monkeypatch
    unknown = mail_settings(receiver, **login).channels["mail"]
    unknown.pop("ca_file")
    _, error = tried(opened, Settings(channels={"mail": unknown}))
    assert "CERTIFICATE_VERIFY_FAILED" in str(error) or "certificate verify failed" in str(error)


def test_a_server_without_starttls_gets_neither_password_nor_mail(
    opened: Opened, mail: MailReceiver, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("s3cr3t")
    login = {"user": "ada", "password_file": str(tmp_path / "password"), "security": "starttls"}
    answer, error = tried(opened, mail_settings(mail, **login))
    assert answer is None and "SMTPNotSupportedError" in str(error)
    assert (mail.mails, mail.logins) == ([], [])


def test_recipients_that_are_refused(opened: Opened, mail: MailReceiver) -> None:
    mail.refused = {"bob@example.org"}
    assert tried(opened, mail_settings(mail)) == ("accepted for 1 of 2 recipients", None)
    mail.refused = {"ada@example.org", "bob@example.org"}
    answer, error = tried(opened, mail_settings(mail))
    assert answer is None and "refused ada@example.org, bob@example.org" in str(error)


def test_a_mail_server_that_is_not_there(opened: Opened, mail: MailReceiver) -> None:
    settings = mail_settings(mail)
    mail.stop()
    answer, error = tried(opened, settings)
    assert (answer, error) == (
        None,
        "the channel mail failed: 127.0.0.1 cannot be reached (Connection refused)",
    )


def test_https_with_an_authority_of_ones_own(opened: Opened, web: WebReceiver, tmp_path: Path) -> None:
    authority = web.use_tls(tmp_path / "tls")
    channel = {"type": "webhook", "url": f"{web.url}/hook", "ca_file": str(authority)}
    assert tried(opened, Settings(channels={"ops": channel}), "ops") == ("200 OK: ok", None)
    assert web.events() == [("test", "test", "test")]
    channel.pop("ca_file")
    answer, error = tried(opened, Settings(channels={"ops": channel}), "ops")
    assert answer is None and "certificate verify failed" in str(error)
    channel["ca_file"] = str(tmp_path / "none.pem")
    with pytest.raises(PreconditionFailed, match="has no usable certificates") as refused:
        raise_error(opened, channel)
    assert refused.value.code == "PRECONDITION_FAILED"


def raise_error(opened: Opened, channel: dict[str, str]) -> None:
    found = read_channels(Settings(channels={"ops": channel}))["ops"]
    found.tls()


HOSTILE = some.text(
    some.sampled_from("ab\n\r\t\0\x0b\x0c\x85\u2028\u2029:<>@\x1b\u202e\ud83d\ude00 "), max_size=40
).filter(lambda text: text.encode("utf-8", "ignore").decode() == text)


@given(subject=HOSTILE, message=HOSTILE, place=HOSTILE)
def test_no_name_can_add_a_header_to_a_mail(subject: str, message: str, place: str) -> None:
    alarm = Alarm(
        kind="rpo_missed",
        subject=f"{subject}\nBcc: eve@example.org",
        number=1,
        level="critical",
        message=f"{message}\r\nBcc: eve@example.org\r\n\r\nbody",
        hint=f"{message}\n",
        raised_at=0.0,
    )
    item = Item(event="raised", key="k", alarm=alarm)
    channel = read_channels(Settings(channels={"m": CHANNEL}))["m"]
    assert isinstance(channel, MailChannel)
    for items in ([item], [item, item]):
        told = AlarmMessage(warehouse="w", place=f"{place}\nBcc: eve@example.org", time=0.0, items=items)
        head = told.as_mail(channel).as_bytes().split(b"\n\n", 1)[0]
        names = [line.split(b":")[0] for line in head.splitlines() if not line.startswith((b" ", b"\t"))]
        assert sorted({*names}) == sorted(names) and b"Bcc" not in names
        assert len(told.title.splitlines()) == 1
        assert all(len(line.splitlines()) == 1 for line in told.lines())
        assert told.as_json() and told.as_chat()


CHANNEL = {
    "type": "mail",
    "server": "smtp.example.org",
    "sender": "strandline@example.org",
    "recipients": "ada@example.org",
}
WEB = {"type": "webhook", "url": "https://example.org/hook"}


def test_the_ports_of_mail_servers() -> None:
    ports = {}
    for security in ("starttls", "tls", "none"):
        found = read_channels(Settings(channels={"m": {**CHANNEL, "security": security}}))["m"]
        assert isinstance(found, MailChannel)
        ports[security] = found.port
    assert ports == {"starttls": 587, "tls": 465, "none": 25}


@pytest.mark.parametrize(
    ("channel", "message"),
    [
        ({}, "type of the channel m cannot be ''"),
        ({"type": "pager"}, "type of the channel m cannot be 'pager'"),
        ({"type": "webhook"}, "has no address"),
        ({**WEB, "url_env": "X"}, "has both url and url_env"),
        ({**WEB, "ulr": "x"}, "has no setting 'ulr'"),
        ({**WEB, "user": "ada"}, "has no setting 'user'"),
        ({**WEB, "level": "fatal"}, "level of the channel m cannot be 'fatal'"),
        ({**WEB, "url": "ftp://example.org/x"}, "is not a URL with http"),
        ({**WEB, "url": "file:///etc/passwd"}, "is not a URL with http"),
        ({**WEB, "url": "https://"}, "is not a URL with http"),
        ({**WEB, "url": "https://[::1"}, "is not a URL"),
        ({**WEB, "url": "https://h:99999/"}, "is not a URL"),
        ({**WEB, "url": "https://h/a\r\nX: y"}, "is empty or not one line"),
        ({**WEB, "url": "https://ada:pw@example.org/"}, "has a user or a password"),
        ({**WEB, "url": "http://example.org/", "token_env": "X"}, "would send its token unencrypted"),
        ({**CHANNEL, "recipients": ""}, "recipients of the channel m is empty"),
        ({**CHANNEL, "recipients": "ada"}, "recipients of the channel m cannot be"),
        ({**CHANNEL, "recipients": "ada@example.org\nBcc: eve@example.org"}, "not one line"),
        ({**CHANNEL, "sender": "a@b.org, c@d.org"}, "sender of the channel m cannot be"),
        ({**CHANNEL, "server": "smtp://x"}, "server of the channel m cannot be"),
        ({**CHANNEL, "server": "host:0"}, "server of the channel m cannot be"),
        ({**CHANNEL, "security": "ssl"}, "security of the channel m cannot be 'ssl'"),
        ({**CHANNEL, "user": "ada"}, "has only one of user and password"),
        (
            {**CHANNEL, "user": "a", "password_env": "X", "security": "none"},
            "would send its password unencrypted",
        ),
        ({k: v for k, v in CHANNEL.items() if k != "sender"}, "has no sender"),
    ],
)
def test_a_channel_that_cannot_be(channel: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_channels(Settings(channels={"m": channel}))
    assert message in refused.value.message
    assert "/hook" not in refused.value.message, "an address may be a secret"


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a\n", "ä", "x" * 65])
def test_a_name_that_no_channel_can_have(name: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot have the name"):
        read_channels(Settings(channels={name: WEB}))


@pytest.mark.parametrize("value", [None, [], {"ops": "url"}, {"ops": {"type": 1}}, {1: 2}])
def test_the_setting_is_a_dict_of_dicts(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="the setting channels is not"):
        Settings(channels=value)


@pytest.mark.parametrize("content", ["", " \n", "two\nlines", "a\0b", b"\xff\xfe"])
def test_a_secret_that_is_not_one_line(opened: Opened, tmp_path: Path, content: str | bytes) -> None:
    file = tmp_path / "url"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    _, error = tried(opened, Settings(channels={"m": {"type": "slack", "url_file": str(file)}}), "m")
    assert error == "the url of the channel m is empty or not one line of text"
