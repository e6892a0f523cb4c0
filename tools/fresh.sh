#!/usr/bin/env bash
# Test the first steps of a new user: clone, run the installation commands of the README, then run the tutorial and the how-to
# pages. Pages that need a server (PostgreSQL, S3, a Spark cluster) are run by the tests instead.
set -euo pipefail
cd "$(dirname "$0")/.."
source_folder="$PWD"
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT

git clone --quiet "$source_folder" "$place/strandline"
cd "$place/strandline"
shim="$place/bin"
mkdir "$shim"
ln -s "$(command -v "${PYTHON:-python3}")" "$shim/python3"
export PATH="$shim:$PATH"
unset PYTHONPATH VIRTUAL_ENV

awk '/^```bash$/ { inside = 1; next } /^```$/ && inside { exit } inside' README.md > "$place/lines.sh"
test -s "$place/lines.sh" || { echo "the README has no installation commands" >&2; exit 1; }
echo "== the README's commands"
cat "$place/lines.sh"
# shellcheck disable=SC1091
. "$place/lines.sh"

# Packages that some pages use.
pip install --quiet '.[encryption,delta,iceberg]' duckdb pandas polars -c constraints.txt
for page in docs/tutorial.md docs/coming-from/*.md docs/how-to/*.md; do
    case "$page" in
    */postgresql.md | */object-stores.md | */spark-cluster.md | */spark-connect.md)
        echo "== $page: skipped, it needs a server"
        continue
        ;;
    esac
    echo "== $page"
    python -m tools.rundocs "$page"
done
