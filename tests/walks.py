"""Which modules a statement passes, recorded while it runs. ``python -m tests.walks`` prints them."""

from __future__ import annotations

import gc
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import strandline
from strandline import Database
from strandline.clock import SystemClock
from tests.test_layers import LEVEL, PACKAGE

PAGE = PACKAGE.parent.parent / "docs" / "architecture.md"

EVERYWHERE = frozenset(
    {
        "errors",
        "types",
        "model",
        "settings",
        "clock",
        "metrics",
        "lru",
        "chunks",
        "cycles",
        "names",
        "records",
        "retry",
        "threads",
        "work",
        "catalog/sqltables",
    }
)
"""What everything else is made of: words and values, which are no stations on a way."""

CALLED_BACK = frozenset(
    {
        ("tables/snapshot", "api"),  # a statement is repeated
        ("operations/engine", "backups"),  # the engine carries out the kinds that it was given
        ("operations/transitions", "backups"),
        ("operations/kind", "backups"),
        (
            "storage/arrow/write",
            "tables",
        ),  # a write asks its transaction for names, and tells it what it read
        ("storage/spark/write", "tables"),
        ("threads", "operations"),  # parts at once, and work with a limit of time, have threads of their own
        ("work", "storage"),  # what a thread works at is looked at, and ended, by what it was given for it
        ("lru", "catalog"),  # what is not remembered is loaded by whoever asks
        ("lru", "storage"),
        ("records", "model"),  # values have a form of their own in a record
    }
)
"""The calls that go up: what was handed down is called back."""


@dataclass
class Walk:
    """``modules`` in the order in which they were entered first; ``upwards`` are calls from a lower layer to
    a higher one."""

    modules: list[str] = field(default_factory=list)
    upwards: list[tuple[str, str]] = field(default_factory=list)

    @property
    def stations(self) -> list[str]:
        return [module for module in self.modules if not {module, _unit(module)} & EVERYWHERE]


@contextmanager
def recorded() -> Iterator[Walk]:
    """Notes every module of ours that a call enters, in all threads."""
    walk = Walk()
    lock = threading.Lock()

    def enter(frame: FrameType, event: str, _: Any) -> None:
        module = _module(frame) if event == "call" else None
        if module is None:
            return
        caller = _caller(frame)
        with lock:
            if module not in walk.modules:
                walk.modules.append(module)
            if caller is not None and LEVEL[_unit(caller)] < LEVEL[_unit(module)]:
                if (caller, module) not in walk.upwards:
                    walk.upwards.append((caller, module))

    gc.collect()
    gc.disable()  # What others have left behind would be cleared up on this walk.
    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        gc.enable()


def _module(frame: FrameType) -> str | None:
    file = frame.f_code.co_filename
    if not file.startswith(f"{PACKAGE}/") or frame.f_code.co_name == "<module>":
        return None
    return str(Path(file).relative_to(PACKAGE).with_suffix(""))


def _caller(frame: FrameType) -> str | None:
    above = frame.f_back
    while above is not None:
        if (module := _module(above)) is not None:
            return module
        above = above.f_back
    return None


def _unit(module: str) -> str:
    return module.partition("/")[0]


def on_the_page(title: str) -> list[str]:
    """The modules that the page lists under a heading, in its order."""
    section = PAGE.read_text().split(f"\n### {title}\n", 1)[1]
    section = re.split(r"\n##+ ", section, maxsplit=1)[0]
    return re.findall(r"^\d+\. `([\w/]+)`", section, re.MULTILINE)


WALKS: dict[str, Callable[[Database], Any]] = {
    "A small UPSERT": lambda db: db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'a', 1), (2, 'b', 2)"),
    "A SELECT through an index": lambda db: db.sql("SELECT n FROM t VIEW by_v WHERE v = 'a'").rows(),
    "BACKUP INCREMENTAL": lambda db: db.sql("BACKUP c INCREMENTAL"),
    "RESTORE": lambda db: db.sql("RESTORE c INTO `restored`"),
}
WARM = ("A small UPSERT", "A SELECT through an index")
"""What a process has usually done before."""


class Stopped(SystemClock):
    """The machine's clock, on which nothing takes long: that would be noted on the way, which is another
    walk."""

    def __init__(self) -> None:
        self._stopped = super().now()

    def now(self) -> float:
        return min(super().now(), self._stopped)


def open_connections(db: Database) -> None:
    """Let the catalog have some: threads that meet by chance need a second one, which is there then."""
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(db.runtime.catalog.engine.connect())


def walks(folder: Path) -> dict[str, Walk]:
    found: dict[str, Walk] = {}
    with strandline.connect(folder, clock=Stopped()) as db:
        db.runtime.catalog.engine.clear_compiled_cache()  # Other tests may have filled it.
        db.sql(
            "CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int64, PRIMARY KEY (k), INDEX by_v GLOBAL ON (v))"
        )
        db.sql(
            "CREATE BACKUP COLLECTION c (TABLE t) "
            "WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
        )
        db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'x', 1)")
        db.sql("SELECT * FROM t VIEW by_v WHERE v = 'x'").rows()
        db.sql("BACKUP c")
        open_connections(db)
        for title, act in WALKS.items():
            if title in WARM:
                act(db)
            with recorded() as walk:
                act(db)
            found[title] = walk
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for title, walk in walks(Path(folder) / "w").items():
            print(f"### {title}: {len(walk.stations)} of {len(walk.modules)}")
            for number, module in enumerate(walk.stations, 1):
                print(f"{number}. `{module}`")
            for caller, module in walk.upwards:
                print(f"   up: {caller} -> {module}")


if __name__ == "__main__":
    main()
