"""Take full and incremental backups of a collection."""
