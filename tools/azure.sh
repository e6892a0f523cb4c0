#!/usr/bin/env bash
# Install the Azure Blob Storage emulator (Azurite) for the tests.
set -euo pipefail

command -v npm >/dev/null || { echo "make azure needs npm, which is not installed." >&2; exit 1; }
mkdir -p "$1" && cd "$1"
test -x node_modules/.bin/azurite-blob || npm install --no-save --no-package-lock --no-audit --no-fund --silent azurite@3
