"""Backups, all of it: collections, what a backup records, full and incremental ones, restoring, reading in
place, verifying."""
