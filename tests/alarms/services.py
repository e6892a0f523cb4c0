"""Service processes in simulated time: each runs schedules and alarms when a test lets it."""

from __future__ import annotations

from dataclasses import dataclass

from strandline import Database
from strandline.api.alarms import board_of
from strandline.api.schedules import scheduler_of


@dataclass
class Service:
    """A process that runs schedules and alarms. Its operations end within its turn."""

    db: Database

    def __post_init__(self) -> None:
        self.scheduler = scheduler_of(self.db, self.db._operations.loaded)
        self.scheduler._launch = lambda operation_id: self.db._operations.engine.run(operation_id)
        self.board = board_of(self.db)

    def turn(self) -> None:
        """Do once what the loops of a process do again and again."""
        self.db.resume()
        self.scheduler.tick()
        self.scheduler.tick()  # Stores the results of what has ended.
        self.board.tick()
