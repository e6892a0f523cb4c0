#!/usr/bin/env bash
# Check for what pip cannot install: Python 3.10+ and Java 17+. If one is missing, print how to install it and exit with 1.
# Usage: tools/doctor.sh [python]
set -u

python="${1:-python3}"
failed=0

if ! command -v "$python" >/dev/null 2>&1; then
    echo "Python 3.10 or newer is needed, and '$python' was not found." >&2
    failed=1
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "Python 3.10 or newer is needed, and '$python' is $("$python" -V 2>&1)." >&2
    failed=1
fi
if [ "$failed" = 1 ]; then
    cat >&2 <<'HINT'
  Debian, Ubuntu:  sudo apt-get install python3 python3-venv
  macOS:           brew install python@3.12
  conda:           conda create -n strandline -c conda-forge python=3.12 && conda activate strandline
  another one:     make PYTHON=/path/to/python3 ...
HINT
fi

# Spark looks in JAVA_HOME first, then on the PATH.
java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
found="$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9][0-9]*\).*/\1/p' | head -n 1)"
if [ -z "$found" ] || [ "$found" -lt 17 ]; then
    if [ -z "$found" ]; then
        echo "Java 17 or newer is needed (Spark runs on it), and '$java' does not run." >&2
    else
        echo "Java 17 or newer is needed (Spark runs on it), and '$java' is version $found." >&2
    fi
    cat >&2 <<'HINT'
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless
  macOS:           brew install openjdk@17 && export JAVA_HOME="$(brew --prefix openjdk@17)"
  conda:           conda install -c conda-forge openjdk=17
HINT
    failed=1
fi

exit "$failed"
