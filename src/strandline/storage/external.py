"""Files of others whose rows are to be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = ["External", "Format"]

Format: TypeAlias = Literal["parquet", "csv", "json"]


@dataclass(frozen=True)
class External:
    """Files, or folders of files, of one format: where they are as URIs, and how to read them."""

    kind: Format
    where: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    """For CSV: ``header`` and ``sep``."""
