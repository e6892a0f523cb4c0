"""Spark that does not see a folder which this process sees, as on a cluster without a shared mount: its
JVM, and all that it starts, is in a mount namespace of its own, where an empty file system can be put over
the folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IN_A_NAMESPACE = ["unshare", "--mount", "--propagation", "private"]
JAVA = """#!/bin/sh
echo $$ > "{pid}"
exec {unshare} "{java}" "$@"
"""


def why_not(folder: Path) -> str | None:
    """Return why nothing can be hidden on this machine; None if it can."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "this machine has no unshare and nsenter"
    command = [*IN_A_NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    tried = subprocess.run(command, capture_output=True, text=True)
    return None if tried.returncode == 0 else f"this user may not mount: {tried.stderr.strip()}"


def java_home(folder: Path) -> Path:
    """Make a JAVA_HOME whose JVMs have a mount namespace of their own."""
    own = os.environ.get("JAVA_HOME")
    java = str(Path(own, "bin", "java")) if own else shutil.which("java")
    made = folder / "bin" / "java"
    made.parent.mkdir(parents=True)
    made.write_text(JAVA.format(pid=folder / "pid", unshare=" ".join(IN_A_NAMESPACE), java=java))
    made.chmod(0o755)
    return folder


@contextmanager
def hidden(home: Path, folder: Path) -> Iterator[None]:
    """The process whose number is in the file ``pid`` of ``home``, such as the JVM that was started last with
    this JAVA_HOME, finds the folder empty; what it writes there stays there."""
    with _mounted(home, folder, f'mount -t tmpfs tmpfs "{folder}"'):
        yield


@contextmanager
def copied(home: Path, folder: Path, change: str = "true") -> Iterator[None]:
    """The same JVM finds what is in the folder, as in a copy: what it writes there stays there.

    ``change``: a shell command that runs in the copy first."""
    scratch = home / "scratch"
    scratch.mkdir(exist_ok=True)
    layers = f"lowerdir={folder},upperdir={scratch}/up,workdir={scratch}/work"
    with _mounted(
        home,
        folder,
        f'mount -t tmpfs tmpfs "{scratch}" && mkdir "{scratch}/up" "{scratch}/work" '
        f'&& mount -t overlay overlay -o "{layers}" "{folder}" '
        f'&& cd "{folder}" && {change}',
    ):
        yield


@contextmanager
def _mounted(home: Path, folder: Path, script: str) -> Iterator[None]:
    inside = ["nsenter", "--mount", "--target", (home / "pid").read_text().strip()]
    subprocess.run([*inside, "sh", "-c", script], check=True)
    try:
        yield
    finally:
        subprocess.run([*inside, "umount", "--lazy", str(folder)], check=True)
