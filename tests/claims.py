"""Claims of single parts, as operations make them by the thousand."""

from __future__ import annotations

from strandline.catalog.paths import Path
from strandline.catalog.transactions import Writer
from strandline.catalog.versions import Claim, VersionRegistry, Wish


def claim(tx: Writer, operation_id: str, part_id: int, path: Path, target: int | None = None) -> Claim:
    return VersionRegistry().claim_all(tx, operation_id, [Wish(part_id, path, target)])[0]


def move(tx: Writer, operation_id: str, part_id: int, path: Path) -> list[Claim]:
    """Claim a path and all that must move with it."""
    return [made for _, made in VersionRegistry().move_all(tx, operation_id, [Wish(part_id, path)])]
