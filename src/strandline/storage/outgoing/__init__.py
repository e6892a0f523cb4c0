"""Rows on their way out: into files and tables of others, and into a pipe."""

from strandline.storage.outgoing.encode import Format, encoded
from strandline.storage.outgoing.targets import Exported, ExportTarget, export

__all__ = ["ExportTarget", "Exported", "Format", "encoded", "export"]
