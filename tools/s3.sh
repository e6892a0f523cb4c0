#!/usr/bin/env bash
# Install the optional programs of the object store tests: an S3 server that stores objects in a folder, and the classes
# that Spark needs for S3.
set -euo pipefail

folder=$(mkdir -p "$1" && cd "$1" && pwd)
for program in go mvn; do
    command -v "$program" >/dev/null || { echo "make s3 needs $program, which is not installed." >&2; exit 1; }
done
test -x "$folder/versitygw" || GOBIN="$folder" go install github.com/versity/versitygw/cmd/versitygw@latest
for artifact in org.apache.hadoop:hadoop-aws:3.4.2 software.amazon.awssdk:bundle:2.29.52; do
    mvn -q dependency:get -Dartifact="$artifact" -Dtransitive=false
done
