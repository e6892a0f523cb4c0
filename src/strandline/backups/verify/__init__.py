"""Verify backups, remember the results, and repair damaged objects."""
