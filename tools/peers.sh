#!/usr/bin/env bash
# Fetch the table formats that bench/peers.py compares with: the classes of Delta and of Iceberg for Spark.
set -euo pipefail

folder=$(mkdir -p "$1" && cd "$1" && pwd)
command -v mvn >/dev/null || { echo "make peers needs mvn, which is not installed." >&2; exit 1; }
for artifact in io.delta:delta-spark_4.1_2.13:4.4.0 io.delta:delta-storage:4.4.0 io.delta:delta-kernel-api:4.4.0 \
    io.delta:delta-kernel-defaults:4.4.0 io.delta:delta-kernel-unitycatalog:4.4.0 \
    org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0; do
    IFS=: read -r _ name version <<< "$artifact"
    test -f "$folder/$name-$version.jar" && continue
    mvn -q -B dependency:copy -Dartifact="$artifact" -DoutputDirectory="$folder" ||
        { echo "make peers cannot get $artifact with mvn." >&2; exit 1; }
done
