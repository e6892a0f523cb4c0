"""Import of external files: find them, detect their format and types, and read their rows."""

from strandline.storage.external.source import External, Format, Incoming, open_source

__all__ = ["External", "Format", "Incoming", "open_source"]
