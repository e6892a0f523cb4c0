"""Files of others whose rows are to be loaded: where they are, what they are, and how to read them."""

from strandline.storage.external.source import External, Format, Incoming, open_source

__all__ = ["External", "Format", "Incoming", "open_source"]
