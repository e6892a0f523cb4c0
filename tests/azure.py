"""A server that speaks Azure's protocol: Azurite, if STRANDLINE_AZURITE names its program (``make
azure``)."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import itertools
import os
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.settings import Settings
from tests.s3 import free_port, listening

PROGRAM = os.environ.get("STRANDLINE_AZURITE")
ACCOUNT = "strandlinetests"
KEY = base64.b64encode(b"a key of the tests, of any length").decode()
_numbers = itertools.count()


@dataclass(frozen=True)
class Azure:
    endpoint: str

    def settings(self, **more: Any) -> Settings:
        options = {"account_name": ACCOUNT, "account_key": KEY, "endpoint": self.endpoint}
        return Settings(storage_options=options, **more)

    def new_container(self) -> str:
        """Make a container, which the library never does, as a request that is signed by hand."""
        name = f"container-{os.getpid()}-{next(_numbers)}"
        headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        what = "".join(f"{key}:{value}\n" for key, value in headers.items())
        signed = f"PUT{12 * chr(10)}{what}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        signature = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
        headers["Content-Length"] = "0"
        url = f"{self.endpoint}/{name}?restype=container"
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)) as answer:
            assert answer.status == 201
        return name


@contextmanager
def server() -> Iterator[Azure]:
    assert PROGRAM is not None
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="strandline-azure-") as folder:
        command = [
            PROGRAM,
            "--blobPort",
            str(port),
            "--location",
            folder,
            "--silent",
            "--skipApiVersionCheck",
        ]
        command += ["--disableTelemetry", "--loose"]
        env = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
        with listening(command, env, port, Path(folder, "log")):
            yield Azure(f"http://127.0.0.1:{port}/{ACCOUNT}")
