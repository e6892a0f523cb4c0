"""Run a scenario and kill this process at the n-th write boundary: ``python -m tests.crash.victim``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.crash.mortal import Fate, by_kill, connect
from tests.crash.scenarios import BY_NAME


def main(folder: str, url: str, name: str, number: str, at: str) -> None:
    scenario = BY_NAME[name]
    fate = Fate(int(at), by_kill)
    db = connect(Path(folder), url or None, fate, scenario.settings)
    scenario.act(db, int(number))
    db.close()
    sys.stdout.write(f"{len(fate.trail)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
