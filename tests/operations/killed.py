"""A process that runs a copy and kills itself, without cleaning up, after its n-th transaction.

The transactions are its session, the plan, 3 for each of 4 tables, 2 for each of 2 indexes, and the end.

python -m tests.operations.killed CATALOG_URL N
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from strandline.catalog.connection import Catalog
from strandline.catalog.sessions import Session
from tests.engines import STREAM, copy_request, engine_of, execute

ROOT = Path(__file__).resolve().parents[2]
REQUEST = copy_request(("/orders", "/copies/orders"), ("/users", "/copies/users"), stream=STREAM)


def main(url: str, last: int) -> None:
    catalog = Catalog(url)
    catalog.open()
    done = 0

    def die() -> None:
        nonlocal done
        done += 1
        if done == last:
            os.kill(os.getpid(), signal.SIGKILL)

    catalog.after_commit = die
    execute(engine_of(catalog, lease=Session(catalog, 60.0, 60.0)), "copy", REQUEST)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
