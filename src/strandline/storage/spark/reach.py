"""Whether a server is there at all: asked before Spark is, which would try again for minutes and then not say
why."""

from __future__ import annotations

import contextlib
import socket
import struct
from urllib.parse import urlsplit

from strandline.errors import Unavailable

__all__ = ["reach"]

SECONDS = 6.0
"""For so long all hosts together may be silent. A server that is busy is not to be taken for one that is
not there, and who waits is to hear of it within ten seconds."""
_HELLOS = {
    # How HTTP/2 begins, with settings that leave everything as it is: a server says its own.
    "sc": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]),
    # A request for a stream that there is not: its length, its kind, and the length of a name.
    "spark": struct.pack(">qbi", 8 + 1 + 4 + 17, 6, 17) + b"files/strandline?",
}
"""What every server of a kind answers, and none complains about in its log. One that wants TLS answers that
this is none."""


def reach(url: str, port: int, what: str) -> None:
    """Refuse a URL at none of whose hosts anybody answers. ``port``: where they do if it names none."""
    why = ""
    scheme, _, rest = url.partition("://")
    hosts = rest.split("/", 1)[0].split(";", 1)[0].split(",")
    for host in hosts:
        seconds = SECONDS / len(hosts)
        try:
            place = urlsplit(f"{scheme}://{host}")
            with socket.create_connection((place.hostname or "", place.port or port), seconds) as line:
                with contextlib.suppress(ConnectionError):  # It closes the line: that is an answer, too.
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
