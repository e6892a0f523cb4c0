"""Check that a server answers, before Spark connects.

Spark would retry for minutes and then not report the reason.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from urllib.parse import urlsplit

from strandline.errors import Unavailable

__all__ = ["reach"]

SECONDS = 6.0
"""Timeout of all hosts together: long enough for a busy server, and the caller waits at most 10 seconds."""
_HELLOS = {
    # The HTTP/2 connection preface with empty settings. A server answers with its own settings.
    "sc": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]),
    # A request for a stream that does not exist: its length, its kind, and the length of a name.
    "spark": struct.pack(">qbi", 8 + 1 + 4 + 17, 6, 17) + b"files/strandline?",
}
"""Messages that every server of a kind answers without logging an error.

A server that expects TLS answers that the message is invalid.
"""


def reach(url: str, port: int, what: str) -> None:
    """Raise an error if no host in a URL answers. ``port``: the default port."""
    why = ""
    scheme, _, rest = url.partition("://")
    hosts = rest.split("/", 1)[0].split(";", 1)[0].split(",")
    for host in hosts:
        seconds = SECONDS / len(hosts)
        try:
            place = urlsplit(f"{scheme}://{host}")
            with socket.create_connection((place.hostname or "", place.port or port), seconds) as line:
                # The server closes the connection: that is an answer, too.
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
