"""All orders in which the parts of an operation can run."""

from __future__ import annotations

import random
import sqlite3

from sqlalchemy import select

from strandline.catalog import operations, sqltables
from strandline.catalog.operations import DONE, PartRow
from strandline.records import Record
from tests import world
from tests.backups.branches import Branches


class Orders:
    """One started operation, and all orders of its parts."""

    def __init__(self, branches: Branches, kind: str, request: Record) -> None:
        self.branches = branches
        self.engine = branches.process()
        self.engine.start(kind, request)
        self.start = branches.keep()
        self._planned = [self._name(part) for part in self.engine.transitions.runnable("op")[1]]
        self.nodes: dict[frozenset[str], str] = {}
        self.edges = self.deaths = 0

    def plain(self) -> str:
        """Return the end state if the parts run as planned."""
        self._again(self.start)
        assert self.engine.run("op").state == DONE
        return self.branches.canonical()

    def shuffled(self, random_: random.Random, *, whole: bool, dies: float) -> str:
        """Return the end state of a random order of parts.

        Args:
            whole: Run one part after the other; otherwise mix their phases.
            dies: Probability that the process dies after a transition.
        """
        self._again(self.start)
        while runnable := self.engine.transitions.runnable("op")[1]:
            part = random_.choice(runnable)
            while True:
                part = self._transition(part)
                if random_.random() < dies:
                    self._die()
                if not whole or part.state == DONE:
                    break
        self.engine.step("op")
        return self.branches.canonical()

    def explore(self, *, deaths: bool, reduced: bool = False) -> set[str]:
        """Return all end states.

        A node is a set of finished parts. All orders that lead to a node must give the same catalog, so only
        one of them is followed further; then all orders give the same end state.

        Args:
            deaths: After each transition the process dies, and another one takes over.
            reduced: Parts of different tables commute, so it is enough to follow the orders in which all
                parts of the first table
            come before those of the others. That they commute is checked in every state of the first table,
                with each part of
            another table: before and after each part of the first table, both orders give the same catalog.
                With deaths, no part
            follows such a part.
        """
        level = {frozenset[str](): self.start}
        ends = set()
        while level:
            following: dict[frozenset[str], sqlite3.Connection] = {}
            for done, here in level.items():
                self._again(here)
                runnable = self.engine.transitions.runnable("op")[1]
                for part in self._followed(done, runnable, deaths=deaths) if reduced else runnable:
                    self._again(here)
                    self._carry_out(part, deaths=deaths)
                    node, state = done | {self._name(part)}, self.branches.canonical()
                    assert state == self.nodes.setdefault(node, state), sorted(node)
                    if node not in following:
                        following[node] = self.branches.keep()
                if not runnable:
                    self.engine.step("op")
                    ends.add(self.branches.canonical())
                if here is not self.start:
                    here.close()
            level = following
        return ends

    def _name(self, part: PartRow) -> str:
        """Return a name that does not depend on the order; the table comes first."""
        at = sqltables.parts.c
        path = select(at.path).where(at.operation_id == "op", at.id == part.id)
        with self.branches.catalog.read() as conn:
            table = str(conn.execute(path).scalar_one()).split("/")[1]
        return f"{table} {part.kind} {part.stage} {part.body}"

    def _followed(self, done: frozenset[str], runnable: list[PartRow], *, deaths: bool) -> list[PartRow]:
        """Return the parts of the first table. When it is done, return all others, otherwise one of them."""
        names = {part.id: self._name(part) for part in runnable}
        first = min({name.split()[0] for name in self._planned})
        mine = [part for part in runnable if names[part.id].split()[0] == first]
        has_other = any(name.split()[0] != first for name in done)
        if mine and has_other:
            return [] if deaths else mine
        return runnable

    def _again(self, kept: sqlite3.Connection) -> None:
        """Continue from a saved state, as the process that owns the operation."""
        self.branches.go_back(kept)
        self.engine = self.branches.process()
        owner = self.engine.get("op").session_id
        self.engine.lease = self.engine.transitions.lease = world.Process(self.branches.catalog, owner)

    def _carry_out(self, part: PartRow, *, deaths: bool) -> None:
        self.edges += 1
        while part.state != DONE:
            part = self._transition(part)
            if deaths:
                self._die()

    def _transition(self, part: PartRow) -> PartRow:
        assert self.engine.transitions.advance(self.engine.get("op"), part)
        with self.branches.catalog.read() as conn:
            return operations.present_parts(conn, "op", [part.id])[part.id]

    def _die(self) -> None:
        self.deaths += 1
        self.branches.bury()
        self.engine = self.branches.process()
        assert self.engine.take_over() == ["op"]
