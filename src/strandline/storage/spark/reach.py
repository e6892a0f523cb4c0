"""Whether a server is there at all: asked before Spark is, which would try again for minutes and then not say
why."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from strandline.errors import Unavailable

__all__ = ["reach"]

SECONDS = 5.0


def reach(url: str, port: int, what: str) -> None:
    """Refuse a URL at none of whose hosts anybody answers. ``port``: where they do if it names none."""
    why = ""
    scheme, _, rest = url.partition("://")
    hosts = rest.split("/", 1)[0].split(";", 1)[0].split(",")
    for host in hosts:
        try:
            place = urlsplit(f"{scheme}://{host}")
            with socket.create_connection((place.hostname or "", place.port or port), SECONDS / len(hosts)):
                return
        except TimeoutError:
            why = why or f"no answer from {host} within {SECONDS:g} seconds"
        except (OSError, ValueError) as error:
            why = why or f"{host}: {getattr(error, 'strerror', None) or error}"
    raise Unavailable(
        f"{what} {scheme}://{','.join(hosts)} cannot be reached: {why[:1].lower() + why[1:]}",
        "Check that it runs, its name and its port, and the network; or work without it: leave SPARK_REMOTE, "
        "SPARK_MASTER and spark.master unset.",
    )
