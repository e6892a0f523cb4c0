"""The application with all commands, for tools that describe the command line."""

from __future__ import annotations

from strandline.cli.app import COMMANDS, app_with

app = app_with(COMMANDS)
