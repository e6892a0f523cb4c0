"""A missing server is reported at once, with the reason."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from strandline.errors import Unavailable
from strandline.storage.spark import reachable as reaching
from strandline.storage.spark.reachable import reach
from strandline.storage.spark.session import _start


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Reserve a port on which no process listens, so that no other process can bind it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextlib.contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """Listen on a port and send ``answer`` to every connection; None: never answer."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as there:

        def answer_all() -> None:
            kept = []
            with contextlib.suppress(OSError):
                while True:
                    line, _ = there.accept()
                    kept.append(line)
                    if answer is not None:
                        line.recv(1000)
                        line.sendall(answer)
                        line.close()

        threading.Thread(target=answer_all, daemon=True).start()
        yield there.getsockname()[1]


@pytest.mark.parametrize("answer", [b"x", b""], ids=["answers", "closes the line"])
def test_a_server_that_is_there(answer: bytes, closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "SECONDS", 600.0)
    with answering(answer) as port:
        reach(f"sc://127.0.0.1:{port}/;token=secret", 15002, "it")
        reach(f"spark://127.0.0.1:{closed_port},127.0.0.1:{port}", 7077, "it")
        reach("sc://127.0.0.1", port, "it")


@pytest.mark.parametrize("scheme", ["sc", "spark"])
def test_somebody_listens_and_says_nothing(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "SECONDS", 0.2)
    with answering(None) as port:
        with pytest.raises(Unavailable, match=rf"no answer from 127\.0\.0\.1:{port} within 0\.2 seconds"):
            reach(f"{scheme}://127.0.0.1:{port}", 1, "the server")


@pytest.mark.parametrize(
    ("setting", "scheme", "what"),
    [("spark.remote", "sc", "Spark Connect server"), ("spark.master", "spark", "Spark master")],
)
def test_nobody_listens(
    setting: str, scheme: str, what: str, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    url = f"{scheme}://127.0.0.1:{closed_port}"
    with pytest.raises(Unavailable) as told:
        _start({setting: url})
    assert (
        told.value.message
        == f"the {what} {url} cannot be reached: {url[len(scheme) + 3 :]}: Connection refused"
    )
    assert "Check that it runs" in told.value.hint


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(Unavailable, match=r"sc://nobody\.invalid:1 cannot be reached: nobody\.invalid:1: "):
        reach("sc://nobody.invalid:1/;token=secret", 15002, "the server")


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(address: object, seconds: float) -> socket.socket:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", never)
    with pytest.raises(Unavailable, match="no answer from far:1 within 6 seconds"):
        reach("sc://far:1", 15002, "the server")
