"""Export of rows to files, lake tables and pipes."""

from strandline.storage.outgoing.encode import Format, encode_rows
from strandline.storage.outgoing.parts import ExportedPart, PartFolder, SpreadRows
from strandline.storage.outgoing.targets import Exported, ExportTarget, export

__all__ = [
    "ExportTarget",
    "Exported",
    "ExportedPart",
    "Format",
    "PartFolder",
    "SpreadRows",
    "encode_rows",
    "export",
]
