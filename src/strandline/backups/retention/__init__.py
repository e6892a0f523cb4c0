"""Decide which backups stay, and delete the others."""
