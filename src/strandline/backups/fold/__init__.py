"""Fold backups of a chain: compact a chain into a full backup, merge neighbouring increments."""
