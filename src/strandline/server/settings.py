"""Settings of the service."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, fields

from strandline.errors import InvalidArgument, PreconditionFailed


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of one service process."""

    host: str = "127.0.0.1"
    """Address to listen on.

    Any address but loopback needs ``tls_cert`` and ``tls_key``, or ``behind_proxy``.
    """
    port: int = 8080
    """Port to listen on; 0: a free one."""
    tls_cert: str | None = None
    """File with the certificate chain, in PEM."""
    tls_key: str | None = None
    """File with the private key of the certificate, in PEM."""
    behind_proxy: bool = False
    """A proxy in front of the service encrypts. It appends the client's address to X-Forwarded-For."""
    max_body_bytes: int = 1024 * 1024
    """Maximum size of the body of a request."""
    body_seconds: float = 30.0
    """Maximum time for a client to send the body of a request."""
    header_seconds: float = 15.0
    """Maximum time for a client to send the headers of a request."""
    request_seconds: float = 600.0
    """Maximum time for a call that is not an operation; then it is interrupted and undone."""
    sql_seconds: float = 60.0
    """Maximum time for a query. A request may ask for less."""
    sql_rows: int = 10_000
    """Maximum number of rows of a query's JSON result. A request may ask for less."""
    sql_bytes: int = 16 * 1024 * 1024
    """Maximum size of the result of a query."""
    requests_per_second: float = 200.0
    """Maximum mean rate of requests per token; 0: no limit."""
    event_streams: int = 500
    """Maximum number of open streams of operation events."""
    failed_logins_per_minute: int = 10
    """Maximum number of requests with a wrong token per minute and address."""
    web_session_seconds: float = 12 * 3600.0
    """Time until a browser has to log in again."""
    threads: int = 16
    """Maximum number of calls that run at the same time."""
    maintain_seconds: float = 60.0
    """Pause between rounds of housekeeping; 0: the service does no housekeeping."""
    maintain_budget_seconds: float = 30.0
    """Maximum time of a round of housekeeping; the next round continues with the remaining tables."""
    run_schedules: bool = True
    """Start the runs of schedules that are due."""
    drain_seconds: float = 1.0
    """Time after SIGTERM during which requests are still accepted.

    Meanwhile ``/readyz`` answers 503, so that load balancers choose another process.
    """
    shutdown_seconds: float = 30.0
    """After that: maximum time for running requests to finish."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if setting.type in ("int", "float") and not (is_number and value >= 0):
                raise InvalidArgument(
                    f"the setting {setting.name} cannot be {value!r}", "Give a number that is at least 0."
                )
        if not 0 <= self.port <= 65535:
            raise InvalidArgument(f"the port cannot be {self.port}", "Give a number from 0 to 65535.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidArgument(
                "TLS needs a certificate and its key", "Give both --tls-cert FILE and --tls-key FILE."
            )
        for file in filter(None, (self.tls_cert, self.tls_key)):
            if not os.access(file, os.R_OK):
                raise InvalidArgument(f"the file {file} cannot be read", "Check its name and its rights.")
        if not (self.is_loopback or self.has_tls or self.behind_proxy):
            raise PreconditionFailed(
                f"the service does not listen on {self.host} without TLS: tokens would be sent in plain text",
                "Give --tls-cert and --tls-key, or --behind-proxy if a proxy in front of it encrypts.",
            )

    @property
    def has_tls(self) -> bool:
        """Whether the service itself encrypts."""
        return self.tls_cert is not None

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
