"""Backup collections and what a backup records of itself. Values only: no catalog, no files, no Spark."""
