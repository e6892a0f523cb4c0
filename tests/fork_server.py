"""A process that has loaded the library and of which others are forked: ``python tests/fork_server.py
NUMBER``.

To load what connects to a warehouse takes most of a second, and many tests are about processes that hardly do
more. Whoever asks, at the socket of that number, names what shall run, and gets a child of its own; see
``tests/processes.py``. The processes have nothing in common but what every process has that has done its
first work: no connection, no file.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import socket
import sys
import tempfile
import time
import types
import warnings
from typing import Any


def warm_up() -> None:
    from sqlalchemy import create_engine

    import strandline

    create_engine("postgresql+psycopg://nobody@localhost")  # It loads the driver.

    with tempfile.TemporaryDirectory() as folder, strandline.connect(folder) as db:
        db.sql(
            "CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL SYNC ON (v)); "
            "UPSERT INTO t (k) VALUES (1)"
        )
        db.sql("SELECT * FROM t").rows()
    gc.collect()
    gc.freeze()


def serve(asking: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Answer what a child shall do, in the child; this process ends with those who ask."""
    while True:
        text, ends, _, _ = socket.recv_fds(asking, 1 << 20, 3)
        if not text:
            sys.exit()
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            # Newer versions of Python warn of threads, but those of Arrow have nothing to do.
            warnings.simplefilter("ignore", DeprecationWarning)
            between = os.fork()
        if between == 0:
            child = os.fork()
            if child == 0:
                for end in (reader, writer, asking.detach()):
                    os.close(end)
                return json.loads(text), ends
            os.write(writer, str(child).encode())
            os._exit(0)
        # When the one between is gone, its child belongs to who asked.
        os.waitpid(between, 0)
        asking.send(os.read(reader, 100))
        for end in (reader, writer, *ends):
            os.close(end)


def become(asked: dict[str, Any], ends: list[int]) -> None:
    for number, end in enumerate(ends):
        os.dup2(end, number)
        os.close(end)
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    os.chdir(asked["cwd"])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = ["", *paths, *(path for path in sys.path[1:] if path not in paths)]
    how, what, *arguments = asked["arguments"]
    sys.argv[:] = [how, *arguments]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), main.__dict__)


if __name__ == "__main__":
    warm_up()
    become(*serve(socket.socket(fileno=int(sys.argv[1]))))
