"""Restore backups: requests, plans, targets, parts, and dry runs."""
