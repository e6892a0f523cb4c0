"""Receivers of alarms on this machine: a web server and a mail server that behave as a test says."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from email.message import Message
from email.parser import BytesParser
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


class WebReceiver:
    """A web server that keeps the bodies and headers that it was sent. ``accepted``: without those refused.

    ``answer``: what it does with a request, given the handler and the number of the request.
    """

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.accepted: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answer: Callable[[BaseHTTPRequestHandler, int], None] | None = None
        self.released = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.paths.append(self.path)
                receiver.headers.append(dict(self.headers))
                receiver.bodies.append(json.loads(body))
                if receiver.answer is not None:
                    receiver.answer(self, len(receiver.bodies))
                else:
                    receiver.accepted.append(receiver.bodies[-1])
                    reply(self, 200, "ok")

            def do_GET(self) -> None:
                receiver.paths.append(f"GET {self.path}")
                reply(self, 200, "ok")

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def use_tls(self, folder: Path) -> Path:
        """Answer with TLS from now on; return the file with the certificate of the authority."""
        context, authority = server_tls(folder)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = self.url.replace("http://127.0.0.1", "https://localhost")
        return authority

    def __enter__(self) -> WebReceiver:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)

    def events(self) -> list[tuple[str, str, str]]:
        """Return what was told: event, kind and subject of each alarm, in order."""
        return [(a["event"], a["kind"], a["subject"]) for body in self.bodies for a in body["alarms"]]

    def keys(self) -> list[str]:
        return [alarm["key"] for body in self.bodies for alarm in body["alarms"]]


def reply(handler: BaseHTTPRequestHandler, code: int, text: str = "", **headers: str) -> None:
    handler.send_response(code)
    for name, value in {"Content-Length": str(len(text.encode())), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(text.encode())


class MailReceiver:
    """A mail server that keeps the mails that it was sent.

    Args:
        folder: Encrypt connections with a certificate in this folder. None: not encrypted.
        implicit: Encrypt connections from the start, instead of with STARTTLS.
        login: The user and the password that are required. None: no login.
    """

    def __init__(
        self, folder: Path | None = None, *, implicit: bool = False, login: tuple[str, str] | None = None
    ) -> None:
        self.mails: list[Message] = []
        self.to: list[list[str]] = []
        self.logins: list[tuple[str, str]] = []
        self.refused: set[str] = set()
        self.authority: Path | None = None
        self._is_stopped = False
        context: ssl.SSLContext | None = None
        if folder is not None:
            context, self.authority = server_tls(folder)

        def authenticate(
            server: SMTP, session: Session, envelope: Envelope, mechanism: str, given: Any
        ) -> AuthResult:
            assert isinstance(given, LoginPassword)
            found = (given.login.decode(), given.password.decode())
            self.logins.append(found)
            return AuthResult(success=found == login)

        options: dict[str, Any] = {"hostname": "127.0.0.1", "port": 0, "server_hostname": "localhost"}
        if login is not None:
            options |= {"authenticator": authenticate, "auth_require_tls": not implicit}
        if context is not None and implicit:
            options["ssl_context"] = context
        elif context is not None:
            options |= {"tls_context": context, "require_starttls": True}
        self._controller = _Controller(self, **options)

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        self.mails.append(BytesParser(policy=default).parsebytes(envelope.content))
        self.to.append(envelope.rcpt_tos)
        return "250 OK"

    @property
    def port(self) -> int:
        return self._controller.port

    def __enter__(self) -> MailReceiver:
        self._controller.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self._controller.stop(no_assert=True)


class _Controller(Controller):
    """A controller that listens on a free port."""

    def _trigger_server(self) -> None:
        server: Any = self.server
        self.port = server.sockets[0].getsockname()[1]
        with socket.create_connection((self.hostname, self.port), 10) as made:
            if self.ssl_context is None:
                made.recv(100)
                return
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(made) as encrypted:
                encrypted.recv(100)


def server_tls(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Return the settings of a server named localhost, and the file with the certificate to trust."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    authority, private = folder / "authority.pem", folder / "key.pem"
    authority.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority, private)
    return context, authority
