"""An S3 server of our own, and a line to it that can fail.

The server is moto, inside this process; or, if STRANDLINE_VERSITYGW names its program, a gateway that keeps
objects in a folder (``make s3``).
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.settings import Settings

KEY = "strandline-tests"
SECRET = "odd/secret+with%2Fsigns&=:@ä"
"""What must never be seen anywhere."""
_numbers = itertools.count()


@dataclass(frozen=True)
class S3:
    """A server, or a line to it."""

    endpoint: str
    key: str
    secret: str

    @property
    def options(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "access_key_id": self.key,
            "secret_access_key": self.secret,
            "region": "us-east-1",
        }

    @property
    def variables(self) -> dict[str, str]:
        """The same for the environment."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
        }

    def settings(self, **more: Any) -> Settings:
        return Settings(storage_options=self.options, **more)

    @property
    def client(self) -> Any:
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.key,
            aws_secret_access_key=self.secret,
            region_name="us-east-1",
        )

    def new_bucket(self) -> str:
        name = f"bucket-{os.getpid()}-{next(_numbers)}"
        self.client.create_bucket(Bucket=name)
        return name

    def objects(self, bucket: str) -> dict[str, int]:
        """The objects of a bucket, as somebody else sees them, with their sizes."""
        found = self.client.list_objects_v2(Bucket=bucket).get("Contents", [])
        return {each["Key"]: each["Size"] for each in found}

    def unfinished(self, bucket: str) -> int:
        """How many uploads in parts have neither ended nor been given up."""
        return len(self.client.list_multipart_uploads(Bucket=bucket).get("Uploads", []))


@contextmanager
def server() -> Iterator[S3]:
    program = os.environ.get("STRANDLINE_VERSITYGW")
    with _gateway(program) if program else _moto() as endpoint:
        yield S3(endpoint, KEY, SECRET if not program else "a/plain+secret")


@contextmanager
def _moto() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    try:
        yield "http://{}:{}".format(*moto.get_host_and_port())
    finally:
        moto.stop()


@contextmanager
def _gateway(program: str) -> Iterator[str]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="strandline-s3-") as folder:
        env = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": "a/plain+secret"}
        Path(folder, "objects").mkdir()
        command = [program, "--port", f"127.0.0.1:{port}", "posix", f"{folder}/objects"]
        with listening(command, env, port, Path(folder, "log")):
            yield f"http://127.0.0.1:{port}"


@contextmanager
def listening(command: list[str], env: dict[str, str], port: int, log: Path) -> Iterator[None]:
    """A program that answers at a port of this machine while the block lasts."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out)
    try:
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


Answer = Callable[[socket.socket, bytes], bool]
"""Given a connection and what it asked first, does something to it, and says whether the server shall hear of
it."""


class Line:
    """A way to the server on which a number of requests goes wrong. A connection carries one request."""

    def __init__(self, s3: S3) -> None:
        self._target = ("127.0.0.1", int(s3.endpoint.rpartition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._fails: Callable[[bytes], Answer | None] = lambda head: None
        self.s3 = S3(f"http://127.0.0.1:{self._listener.getsockname()[1]}", s3.key, s3.secret)
        self.asked: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def fail(self, answer: Answer, *, times: int = 10**9, of: str = "") -> None:
        """Let the next so many requests fail whose first line has ``of`` in it."""
        left = itertools.count()

        def fails(head: bytes) -> Answer | None:
            first = head.split(b"\r\n", 1)[0].decode()
            return answer if of in first and next(left) < times else None

        self._fails = fails

    def deny_removal(self) -> None:
        """Let the bucket refuse to remove objects, as one does that keeps them for good."""
        answer = says("403 Forbidden")

        def fails(head: bytes) -> Answer | None:
            first = head.split(b"\r\n", 1)[0]
            return answer if first.startswith(b"DELETE") or b"?delete" in first else None

        self._fails = fails

    def heal(self) -> None:
        self._fails = lambda head: None

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                if not (more := connection.recv(1 << 16)):
                    return
                head += more
            first = head.split(b"\r\n", 1)[0].decode()
            self.asked.append(first)
            answer = self._fails(head)
            # One request for each connection: else a later one would pass unseen.
            asked = head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
            if answer is not None and not answer(connection, head):
                return
            with socket.create_connection(self._target) as server:
                server.sendall(asked)
                threading.Thread(target=_pump, args=(connection, server), daemon=True).start()
                _pump(server, connection, getattr(answer, "cut_after", None))
                for end in (
                    server,
                    connection,
                ):  # Closing alone is not enough: the thread still reads from them.
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, target: socket.socket, most: int | None = None) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            if most is not None and (most := most - len(data)) < 0:
                target.sendall(data[:most])
                return
            target.sendall(data)


def cut(connection: socket.socket, head: bytes) -> bool:
    """The connection ends before the server hears anything."""
    return False


def reset(connection: socket.socket, head: bytes) -> bool:
    """The connection breaks: the client cannot know whether the server heard it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def says(status: str) -> Answer:
    """An answer comes, but not from the server."""

    def answer(connection: socket.socket, head: bytes) -> bool:
        length = next(
            (int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length")), 0
        )
        left = length - (len(head) - head.index(b"\r\n\r\n") - 4)
        while left > 0 and (data := connection.recv(1 << 16)):
            left -= len(data)
        connection.sendall(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        return False

    return answer


def unheard(most: int) -> Answer:
    """The server does what it is asked, but its answer is cut after so many bytes."""

    def answer(connection: socket.socket, head: bytes) -> bool:
        return True

    answer.cut_after = most  # type: ignore[attr-defined]
    return answer


def slow(seconds: float) -> Answer:
    """The server hears of it only later."""

    def answer(connection: socket.socket, head: bytes) -> bool:
        time.sleep(seconds)
        return True

    return answer
