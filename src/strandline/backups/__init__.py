"""Backups: collections, full and incremental backups, restore, verification, retention, repositories."""
