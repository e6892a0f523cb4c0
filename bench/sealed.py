"""What it costs to seal files: 256 MB written, copied in and out and read, sealed and as they are.

python bench/sealed.py [FOLDER]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median

from strandline.storage.digest import checksum_of
from strandline.storage.files import Files, LocalFiles
from strandline.storage.keyring import Ring
from strandline.storage.sealed import SealedFiles

SIZE = 256_000_000
ROUNDS = 15


def seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def measured(files: Files, plain: Files, content: bytes) -> dict[str, float]:
    checksum = checksum_of(content)
    for name in ("a", "b"):
        files.remove(name)
    plain.remove("back")
    return {
        "write": seconds(lambda: files.write("a", content)),
        "copy in": seconds(lambda: files.copy(plain, "source", "b", checksum)),
        "copy out": seconds(lambda: plain.copy(files, "b", "back", checksum)),
        "checksum": seconds(lambda: files.checksum("a")),
    }


def main(folder: str) -> None:
    content = os.urandom(SIZE)
    plain = LocalFiles(f"{folder}/plain")
    plain.write("source", content)
    kinds: dict[str, Files] = {
        "plain": plain,
        "sealed": SealedFiles(LocalFiles(f"{folder}/sealed"), Ring(1, os.urandom(32))),
    }
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(ROUNDS):  # By turns, so that whatever else the machine does meets both.
        for kind, files in kinds.items():
            found[kind].append(measured(files, plain, content))
    for act in found["plain"][0]:
        usual = {kind: median(each[act] for each in rounds) for kind, rounds in found.items()}
        rates = ", ".join(f"{kind} {SIZE / 1e6 / usual[kind]:.0f} MB/s" for kind in kinds)
        print(f"{act:10} {rates}, {usual['sealed'] / usual['plain']:.2f} times as long (medians)")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
