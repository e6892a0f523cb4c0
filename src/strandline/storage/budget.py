"""The limits of work in this process. Work above them runs on Spark.

=====================================  ======================  ===========================
work                                   rows                    bytes
=====================================  ======================  ===========================
a statement: rows in memory            ``bulk_rows``           ``bulk_bytes``
a query: rows in memory                ``scan_rows``           ``bulk_bytes``
folding: rows in memory, on columns    FOLDED x ``bulk_rows``  ``bulk_bytes``
streaming: a few rows in memory        HASHED x row limit      COPIED x ``bulk_bytes``
=====================================  ======================  ===========================

The row limit for streaming is ``bulk_rows`` in a statement and ``scan_rows`` in a query.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.settings import Settings

__all__ = ["COPIED", "FOLDED", "HASHED", "Budget"]

FOLDED = 8
"""Factor of the row limit for folding: it takes microseconds per row, while planning a job takes a second."""
HASHED = 100
"""Factor of the row limit for streaming: hashing takes a tenth of a microsecond per row."""
COPIED = 8
"""Factor of the byte limit for streaming.

Streaming that many bytes takes no longer than the start of a job, and much less time than the start of Python
on executors.
"""


@dataclass(frozen=True)
class Budget:
    """Maximum number of rows and bytes of one piece of work in this process."""

    rows: int
    bytes: int

    @classmethod
    def for_statements(cls, settings: Settings) -> Budget:
        return cls(settings.bulk_rows, settings.bulk_bytes)

    @classmethod
    def for_queries(cls, settings: Settings) -> Budget:
        return cls(settings.scan_rows, settings.bulk_bytes)

    @property
    def folded(self) -> Budget:
        """The budget for folding rows in columnar form."""
        return Budget(FOLDED * self.rows, self.bytes)

    @property
    def streamed(self) -> Budget:
        """The budget for reading rows and files piece by piece."""
        return Budget(HASHED * self.rows, COPIED * self.bytes)

    def fits(self, *, rows: int | None = None, bytes: int | None = None) -> bool:
        """Return True if work of this size runs in this process.

        Args:
            rows: number of rows. None: not checked.
            bytes: size in bytes. None: not checked.
        """
        return (rows is None or rows <= self.rows) and (bytes is None or bytes <= self.bytes)
