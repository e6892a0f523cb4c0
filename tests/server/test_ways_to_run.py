"""The files that start a service name commands and options that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from strandline.cli.app import app_with

ROOT = Path(__file__).resolve().parent.parent.parent


def check_command(line: str) -> None:
    """Refuse a ``strandline`` command line that does not parse."""
    words = shlex.split(line)
    assert words[0].endswith("strandline")
    group: Any = typer.main.get_command(app_with([words[1]]))
    command = group.commands[words[1]]
    command.make_context(words[1], words[2:])


def test_the_unit_starts_the_service() -> None:
    text = (ROOT / "ops" / "strandline.service").read_text("utf-8")
    (start,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    check_command(start)
    patience = int(re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)[0])
    pytest.importorskip("fastapi", reason="needs fastapi: pip install 'strandline[server]'")
    from strandline.server import ServerSettings

    settings = ServerSettings()
    assert patience > settings.drain_seconds + settings.shutdown_seconds


def test_compose_starts_the_service_with_all_that_it_needs() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        for volume in service.get("volumes", ()):
            assert volume.partition(":")[0] in compose["volumes"]
    (line,) = services["service"]["command"]
    for command in line.replace("exec ", "").split(" && "):
        check_command(command)
    # Other machines do not reach what has no TLS.
    assert all(port.startswith("127.0.0.1:") for each in services.values() for port in each.get("ports", ()))
    secrets = re.findall(r"(?:PASSWORD|SECRET\w*): (\S+)", (ROOT / "compose.yaml").read_text("utf-8"))
    assert secrets and all(secret.startswith("${") for secret in secrets)
