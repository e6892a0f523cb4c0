"""Warehouses with backups that take long to make: each is made once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class Prepared:
    """Every test has a copy of the warehouse. The repository, of which a catalog knows where it is, is put
    back in its place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Any] = {}

    def repository(self, name: str) -> Path:
        return self._folder / name / "repository"

    def copy(self, name: str, to: Path, make: Callable[[Path, Path], T]) -> T:
        """Make a copy of the warehouse of this name. Return what ``make`` returned when it was given the
        folder of the first one and that of the repository; it leaves the warehouse closed."""
        first, repository = self._folder / name / "warehouse", self.repository(name)
        kept = self._folder / name / "kept"
        if name not in self._made:
            self._made[name] = make(first, repository)
            if repository.exists():
                shutil.copytree(repository, kept)
        shutil.copytree(first, to)
        if kept.exists():
            shutil.rmtree(repository, ignore_errors=True)
            shutil.copytree(kept, repository)
        made: T = self._made[name]
        return made
