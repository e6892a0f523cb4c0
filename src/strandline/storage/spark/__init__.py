"""The bulk side of storage: scans, loads, compaction and verification as Spark jobs."""
