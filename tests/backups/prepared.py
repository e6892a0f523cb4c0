"""Warehouses with backups that take long to create: each is created once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class Prepared:
    """Gives every test a copy of a warehouse.

    The catalog knows the location of the repository, so the repository is copied back to the same place.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Any] = {}

    def repository(self, name: str) -> Path:
        return self._folder / name / "repository"

    def copy(self, name: str, to: Path, make: Callable[[Path, Path], T]) -> T:
        """Copy the warehouse of this name to ``to``, and return the result of ``make``.

        Args:
            make: Creates the warehouse, given its folder and that of the repository, and leaves it closed.
        """
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
