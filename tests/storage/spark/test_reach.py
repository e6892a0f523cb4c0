"""A server that is not there is told at once, and why."""

from __future__ import annotations

import contextlib
import socket

import pytest

from strandline.errors import Unavailable
from strandline.storage.spark.reach import reach
from strandline.storage.spark.session import _start


def closed_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


def test_a_server_that_is_there() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as there:
        port = there.getsockname()[1]
        reach(f"sc://127.0.0.1:{port}/;token=secret", 15002, "it")
        reach(f"spark://127.0.0.1:{closed_port()},127.0.0.1:{port}", 7077, "it")
        reach("sc://127.0.0.1", port, "it")


@pytest.mark.parametrize(
    ("setting", "scheme", "what"),
    [("spark.remote", "sc", "Spark Connect server"), ("spark.master", "spark", "Spark master")],
)
def test_nobody_listens(setting: str, scheme: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    url = f"{scheme}://127.0.0.1:{closed_port()}"
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
    with pytest.raises(Unavailable, match="no answer from far:1 within 5 seconds"):
        reach("sc://far:1", 15002, "the server")
