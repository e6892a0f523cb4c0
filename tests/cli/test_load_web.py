"""``load`` from URLs of a web server on the command line."""

from __future__ import annotations

import functools
import gzip
import socket
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.storage.external import web
from tests.cli.conftest import Run


class _Handler(SimpleHTTPRequestHandler):
    """Serve files of a folder, without range requests; and broken answers."""

    def do_GET(self) -> None:
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", self.path.replace("/moved", ""))
            self.end_headers()
        elif self.path.startswith("/short"):
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"id,customer\n")
        elif self.path.startswith("/secret"):
            self.send_error(403)
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The URL of the files of the folder ``there``."""
    (tmp_path / "there").mkdir()
    handler = functools.partial(_Handler, directory=str(tmp_path / "there"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_files_of_a_web_server(shop: Run, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = Path("there")
    (there / "a b.csv").write_text("id,customer,total\n3,cy,30\n")
    (there / "b.jsonl.gz").write_bytes(gzip.compress(b'{"id": 4, "customer": "dan"}\n'))
    pq.write_table(pa.table({"id": [5], "total": [50]}), there / "c.parquet")
    (there / "export").write_text("id;customer\n6;fay\n")
    for place, *options in (
        [f"{address}/a b.csv"],
        [f"{address}/b.jsonl.gz?signed=by*me"],
        [f"{address}/moved/c.parquet"],
        [f"{address}/export?format=csv", "--format", "csv", "--delimiter", ";"],
    ):
        said = shop("load", "orders", place, *options)
        assert said.code == 0, said.err
    rows = shop("sql", "SELECT id, customer FROM orders WHERE id > 2", "--json").json["rows"]
    assert rows == [[3, "cy"], [4, "dan"], [5, None], [6, "fay"]]
    (there / "a b.csv").write_text("id,customer,total\n7,x,30\n8,y,none\n")
    wrong = shop("load", "orders", f"{address}/a b.csv?token=hush")
    assert wrong.code == 7
    assert f"{address}/a b.csv, line 3: column total" in wrong.err
    for place, code, says in (
        (f"{address}/nope.csv?token=hush", 15, f"{address}/nope.csv cannot be read: the server says 404"),
        (f"{address}/secret.csv", 15, "the server says 403"),
        (f"{address}/short.csv", 15, "ended 88 bytes too early"),
        (f"{address}/export", 7, "the names do not tell the format"),
        (f"{address}/*.csv", 7, "is not the address of one file"),
        (f"{address}", 7, "the names do not tell the format"),
        ("http://[/x.csv", 15, "http://[/x.csv cannot be read"),
        (address.replace("//", "//me:hush@") + "/x.csv", 7, "is given with a user or a password"),
    ):
        said = shop("load", "orders", place)
        assert (said.code, says in said.err) == (code, True), said.err
        assert "hush" not in said.err
        assert "hint: " in said.err
    said = shop("load", "orders", address, "--format", "delta")
    assert (said.code, "cannot be read from a web server" in said.err) == (16, True)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        silent = f"http://127.0.0.1:{busy.getsockname()[1]}/x.csv"
        monkeypatch.setattr(web, "SILENT_SECONDS", 0.2)
        assert "no answer for" in shop("load", "orders", silent).err
    with (
        socket.socket() as taken
    ):  # The port is reserved: no process listens on it, and no other process can bind it.
        taken.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{taken.getsockname()[1]}/x.csv"
        assert "Connection refused" in shop("load", "orders", closed).err
    assert shop("describe", "orders", "--json").json["rows"] == 6
