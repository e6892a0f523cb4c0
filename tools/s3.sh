#!/usr/bin/env bash
# Fetches what the tests of object stores use if it is there: an S3 server that keeps objects in a folder, and the
# classes by which Spark knows S3.
set -euo pipefail

folder=$(mkdir -p "$1" && cd "$1" && pwd)
for program in go mvn; do
    command -v "$program" >/dev/null || { echo "make s3 needs $program, which is not there." >&2; exit 1; }
done
test -x "$folder/versitygw" || GOBIN="$folder" go install github.com/versity/versitygw/cmd/versitygw@latest
for artifact in org.apache.hadoop:hadoop-aws:3.4.2 software.amazon.awssdk:bundle:2.29.52; do
    mvn -q dependency:get -Dartifact="$artifact" -Dtransitive=false
done
