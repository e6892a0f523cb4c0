"""Repositories: what a folder or bucket of backups holds, and how it is written, locked and cleaned."""
