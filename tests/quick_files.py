"""Local files without fsync."""

from __future__ import annotations

from strandline.storage.files import LocalFiles


class QuickFiles(LocalFiles):
    """Local files without fsync: test data need not survive a power failure."""

    def _flush(self, descriptor: int) -> None:
        pass

    def _sync(self, path: str) -> None:
        pass
