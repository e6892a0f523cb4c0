"""Fixtures for the three places of Spark: this machine, a cluster, and Spark Connect to a cluster."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import effort
from tests.cluster.driver import Driver
from tests.cluster.machines import Cluster, connect_server, free_port, python_of_executors

ALL = pytest.mark.skipif(not effort.CLUSTER, reason="a part of make cluster")
"""Tests that are not in the smoke test of ``make test``."""
PLACES = ("local", "standalone", "connect")
"""The places where Spark runs."""
CLIENT = ("grpc", "grpc_status", "google.rpc", "zstandard", "pandas")
"""Modules of the Spark Connect client: the extra ``connect``."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests by place, so that Spark starts once per place.

    By default, pytest orders them by parameter index, and starts Spark a dozen times. Tests that kill workers
    come last, because only they need new workers.
    """
    here = [(number, item) for number, item in enumerate(items) if Path(__file__).parent in item.path.parents]
    ordered = sorted((item for _, item in here), key=_place_of)
    for (number, _), item in zip(here, ordered, strict=True):
        items[number] = item


def _place_of(item: pytest.Item) -> tuple[int, bool]:
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return PLACES.index(params["driver"]) if "driver" in params else -1, item.path.stem == "test_kills"


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python interpreter of executors."""
    return python_of_executors(tmp_path_factory.mktemp("executors"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Iterator[Cluster]:
    try:
        free_port()
    except OSError as error:
        pytest.skip(f"no port can be opened on this machine: {error}")
    made = Cluster(tmp_path_factory.mktemp("cluster"), python)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, python: Path
) -> Iterator[Driver]:
    """A process with Spark at the place of the parameter."""
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        options: dict[str, str] = {"spark.driver.memory": "1g"}
        if request.param == "local":
            place = {"SPARK_MASTER": "local[*]"}
        else:
            cluster: Cluster = request.getfixturevalue("cluster")
            cluster.hire()
            if request.param == "standalone":
                place, options = {"SPARK_MASTER": cluster.url}, cluster.settings
            else:
                if missing := [name for name in CLIENT if not _is_there(name)]:
                    pytest.skip(f"the client of Spark Connect needs {missing[0]}: install the extra connect")
                url = stack.enter_context(connect_server(cluster, folder / "server", python))
                place, options = {"SPARK_REMOTE": url}, {"spark.remote": url}
        made = Driver(folder / "driver", python, **place, STRANDLINE_CLUSTER_OPTIONS=json.dumps(options))
        stack.callback(made.stop)
        made.places = made.run("shipping")  # Run this first: any other job may ship the package.
        yield made


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # A parent package is missing.
        return False
