"""All commands of the command line together, for what describes them."""

from __future__ import annotations

from strandline.cli.app import COMMANDS, app_with

app = app_with(COMMANDS)
