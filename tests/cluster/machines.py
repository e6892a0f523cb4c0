"""Spark's processes on this machine: a master with two workers, and a Spark Connect server.

They get a Python without this package, and nothing else of the tests. All of them end with the tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import pyspark

from strandline.errors import Unavailable
from strandline.storage.spark.reachable import reach
from tests import blind

HOST = "127.0.0.1"
SPARK_HOME = Path(pyspark.__file__).parent
LEASH = Path(__file__).with_name("leash.py")
PATIENCE = 120.0
"""Maximum seconds for the start of a process, or for a job to reach a point."""

JAVA_OPTIONS = os.environ.get("SPARK_SUBMIT_OPTS", "")
"""The JVM options of ``tests/conftest.py``."""
EXECUTORS = {
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.memory": "1g",
    "spark.driver.memory": "1g",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.ui.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.locality.wait": "0s",
    # Give up soon on shuffle data of a dead executor.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
}
"""Spark settings of an application on the cluster."""

APART = 'echo $$ > pid; exec "$@"'
"""A command that writes its process id to its folder, for ``blind``."""

T = TypeVar("T")


def until(look: Callable[[], T | None], what: str, seconds: float = PATIENCE) -> T:
    """Wait until ``look`` returns a result; return it."""
    end = time.monotonic() + seconds
    while True:
        if (found := look()) is not None:
            return found
        assert time.monotonic() < end, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def answer(url: str) -> Any:
    """Return the JSON answer of a server; None without an answer."""
    with contextlib.suppress(OSError, ValueError):
        with urllib.request.urlopen(url, timeout=10) as said:
            return json.load(said)
    return None


class Process:
    """A command with its children, in its own folder and environment."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._log = folder / "log"
        read, write = os.pipe()
        self._pipe: int | None = write
        with self._log.open("ab") as log:
            self._leash = subprocess.Popen(
                [sys.executable, "-S", str(LEASH), str(read), *command],
                pass_fds=[read],
                cwd=folder,
                env=dict(environment),
                stdin=stdin,
                stdout=log if stdout is None else stdout,
                stderr=log,
            )
        os.close(read)
        self.stdin: IO[bytes] | None = self._leash.stdin
        self.stdout: IO[bytes] | None = self._leash.stdout

    def signal(self, number: signal.Signals) -> None:
        if self._pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe, bytes([number]))

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._leash.wait()

    def stop(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        self._leash.wait()

    @property
    def lives(self) -> bool:
        return self._leash.poll() is None

    def must_live(self) -> None:
        assert self.lives, f"{self.folder.name} has ended: {self.said()}"

    def said(self) -> str:
        return self._log.read_text("utf-8", "replace")[-4000:]

    def answers(self, url: str) -> bool | None:
        """Return whether it answers correctly. The first answer may take long."""
        self.must_live()
        with contextlib.suppress(Unavailable):
            reach(url, 0, "it")
            return True
        return None


def python_of_executors(folder: Path) -> Path:
    """Return a Python with the dependencies of this package, but without the package or a link to it."""
    packages = folder / "packages"
    packages.mkdir(parents=True)
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            if not entry.name.startswith(("strandline", "__editable__", "_strandline")):
                (packages / entry.name).symlink_to(entry)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    return python


def environment(python: Path) -> dict[str, str]:
    """Return the environment of Spark's processes, without variables of the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "LANG") if name in os.environ}
    return {
        **kept,
        "SPARK_SUBMIT_OPTS": JAVA_OPTIONS,
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": str(python),
    }


class Cluster:
    """A master and two workers with one core and one gigabyte each."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self._environment = environment(python)
        self._port, self._page = free_port(), free_port()
        self.url = f"spark://{HOST}:{self._port}"
        self.ui = free_port()
        """URL with the executors of the application."""
        folder.mkdir(parents=True, exist_ok=True)
        self.never_blind = blind.why_not(folder)
        """Why ``blinded`` is not possible; None if it is."""
        self._apart = () if self.never_blind else ("sh", "-c", APART, "sh", *blind.IN_A_NAMESPACE)
        self._master = self._start(
            "master.Master",
            folder / "master",
            *("--host", HOST, "--port", str(self._port), "--webui-port", str(self._page)),
        )
        self._workers: list[Process] = []
        try:
            until(lambda: self._master.answers(self.url), "the master")
            self.hire()
        except BaseException:
            self.stop()
            raise

    def _start(self, kind: str, folder: Path, *arguments: str, inside: Sequence[str] = ()) -> Process:
        command = [
            *inside,
            str(SPARK_HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind}",
            *arguments,
        ]
        mine = {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(folder / "scratch"),
            "SPARK_WORKER_DIR": str(folder),
        }
        return Process(command, folder, self._environment | mine)

    @property
    def settings(self) -> dict[str, str]:
        return EXECUTORS | {"spark.ui.port": str(self.ui), "spark.port.maxRetries": "0"}

    @contextlib.contextmanager
    def blinded(self, folder: Path, count: int) -> Iterator[None]:
        """Hide a folder from ``count`` workers: they see an empty private folder in its place."""
        with contextlib.ExitStack() as stack:
            for worker in [worker for worker in self._workers if worker.lives][:count]:
                stack.enter_context(blind.hidden(worker.folder, folder))
            yield

    def fill(self) -> None:
        """Restore two workers, and wait until the master knows exactly these."""
        self.hire()
        until(self._complete, "two workers")

    def hire(self) -> None:
        """Start the missing workers. Applications that start meanwhile wait for them."""
        alive = [worker for worker in self._workers if worker.lives]
        for number in range(len(self._workers), len(self._workers) + 2 - len(alive)):
            self._workers.append(
                self._start(
                    "worker.Worker",
                    self.folder / f"worker-{number}",
                    *("--host", HOST, "--cores", "1", "--memory", "1g", "--webui-port", "0", self.url),
                    inside=self._apart,
                )
            )

    def _complete(self) -> bool | None:
        said = answer(f"http://{HOST}:{self._page}/json/")
        return True if said and said["aliveworkers"] == 2 else None

    def worker_at(self, folder: str) -> Process:
        """Return the worker whose executor works in ``folder``."""
        return next(worker for worker in self._workers if Path(folder).is_relative_to(worker.folder))

    def a_worker(self) -> Process:
        """Return a worker with an executor that has completed a task, so that it gets further tasks."""
        return until(
            lambda: next((worker for worker, said in self._executors() if said["completedTasks"] > 0), None),
            "an executor at work",
        )

    def busy(self, worker: Process) -> bool:
        """Return whether the executor of a worker has an unfinished task."""
        return any(where is worker and said["activeTasks"] > 0 for where, said in self._executors())

    @property
    def is_idle(self) -> bool:
        """Return whether no executor has an unfinished task."""
        return all(said["activeTasks"] == 0 for _, said in self._executors())

    def _executors(self) -> Iterator[tuple[Process, dict[str, Any]]]:
        """Yield the worker and Spark's description of each executor."""
        page = f"http://{HOST}:{self.ui}/api/v1/applications"
        for application in answer(page) or []:
            for executor in answer(f"{page}/{application['id']}/executors") or []:
                for worker in self._workers:
                    if worker.lives and (worker.folder / application["id"] / executor["id"]).exists():
                        yield worker, executor

    def stop(self) -> None:
        for process in [*self._workers, self._master]:
            process.stop()


@contextlib.contextmanager
def connect_server(cluster: Cluster, folder: Path, python: Path) -> Iterator[str]:
    """The URL of a Spark Connect server whose executors are those of the cluster."""
    port = free_port()
    settings = cluster.settings | {
        "spark.master": cluster.url,
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(folder / "tables"),
    }
    options = [text for pair in settings.items() for text in ("--conf", "=".join(pair))]
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--class"]
    server = Process(
        [*submit, "org.apache.spark.sql.connect.service.SparkConnectServer", *options],
        folder,
        # The server is started as a Spark daemon.
        environment(python) | {"SPARK_DAEMON_MEMORY": "1g", "SPARK_LOCAL_DIRS": str(folder / "scratch")},
    )
    try:
        url = f"sc://{HOST}:{port}"
        until(lambda: server.answers(url), "the Spark Connect server")
        yield url
    finally:
        server.stop()
        shutil.rmtree(folder / "scratch", ignore_errors=True)
