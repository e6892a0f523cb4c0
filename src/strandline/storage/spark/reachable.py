"""Check that a server answers before Spark connects to it.

Without this check Spark retries for minutes, and then does not report the reason.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from urllib.parse import urlsplit

from strandline.errors import Unavailable

__all__ = ["reach"]

SECONDS = 6.0
"""Timeout for all hosts together: long enough for a busy server, short enough for a caller that waits."""
_HELLOS = {
    # The HTTP/2 connection preface with empty settings. A server answers with its own settings.
    "sc": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]),
    # A request for a stream that does not exist: its length, its kind, and the length of a name.
    "spark": struct.pack(">qbi", 8 + 1 + 4 + 17, 6, 17) + b"files/strandline?",
}
"""First message to a server, by URL scheme. Every such server answers it without logging an error.

A server that expects TLS answers with an error, which also shows that it is reachable.
"""


def reach(url: str, port: int, what: str) -> None:
    """Raise Unavailable if no host in a URL answers.

    Args:
        port: port of hosts without a port in the URL.
        what: name of the server for the error message.
    """
    why = ""
    scheme, _, rest = url.partition("://")
    hosts = rest.split("/", 1)[0].split(";", 1)[0].split(",")
    for host in hosts:
        seconds = SECONDS / len(hosts)
        try:
            place = urlsplit(f"{scheme}://{host}")
            with socket.create_connection((place.hostname or "", place.port or port), seconds) as line:
                # A server that closes the connection has answered, too.
                with contextlib.suppress(ConnectionError):
                    line.sendall(_HELLOS[scheme])
                    line.recv(1000)
                return
        except TimeoutError:
            why = why or f"no answer from {host} within {seconds:g} seconds"
        except (OSError, ValueError) as error:
            why = why or f"{host}: {getattr(error, 'strerror', None) or error}"
    raise Unavailable(
        f"{what} {scheme}://{','.join(hosts)} cannot be reached: {why[:1].lower() + why[1:]}",
        "Check that it runs, its name and its port, and the network; or work without it: leave SPARK_REMOTE, "
        "SPARK_MASTER and spark.master unset.",
    )
