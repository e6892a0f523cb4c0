"""The orders in which the parts of an operation can come."""

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
    """One operation that has begun, and all ways to its end."""

    def __init__(self, branches: Branches, kind: str, request: Record) -> None:
        self.branches = branches
        self.engine = branches.process()
        self.engine.start(kind, request)
        self.start = branches.keep()
        self._planned = [self._name(part) for part in self.engine.runnable("op")[1]]
        self.nodes: dict[frozenset[str], str] = {}
        self.edges = self.deaths = 0

    def plain(self) -> str:
        """How it ends if its parts come as they were planned."""
        self._again(self.start)
        assert self.engine.run("op").state == DONE
        return self.branches.canonical()

    def shuffled(self, random_: random.Random, *, whole: bool, dies: float) -> str:
        """How it ends in an order that the random numbers say: one part after the other, or with their phases
        mixed. ``dies``: how often its process dies after a transition."""
        self._again(self.start)
        while runnable := self.engine.runnable("op")[1]:
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
        """All ends. A node is a set of parts that are done; all ways to it lead to the same catalog, so one
        of them is followed further: then all orders lead to the same end. ``deaths``: after each transition
        the process dies, and another one takes over.

        ``reduced``: parts of different tables commute, so any order leads where one leads in which all parts
        of the first table come before those of the others. These are all followed. That parts commute is
        looked at in every state of the first table, with each part of another: before each part of the first
        one and after it, they lead to the same catalog. With deaths, nothing follows such a part."""
        level = {frozenset[str](): self.start}
        ends = set()
        while level:
            following: dict[frozenset[str], sqlite3.Connection] = {}
            for done, here in level.items():
                self._again(here)
                runnable = self.engine.runnable("op")[1]
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
        """Which one it is, in any order; its table comes first."""
        at = sqltables.parts.c
        path = select(at.path).where(at.operation_id == "op", at.id == part.id)
        with self.branches.catalog.read() as conn:
            table = str(conn.execute(path).scalar_one()).split("/")[1]
        return f"{table} {part.kind} {part.stage} {part.body}"

    def _followed(self, done: frozenset[str], runnable: list[PartRow], *, deaths: bool) -> list[PartRow]:
        """Those of the first table; of others all when it is done, and else one."""
        names = {part.id: self._name(part) for part in runnable}
        first = min({name.split()[0] for name in self._planned})
        mine = [part for part in runnable if names[part.id].split()[0] == first]
        has_other = any(name.split()[0] != first for name in done)
        if mine and has_other:
            return [] if deaths else mine
        return runnable

    def _again(self, kept: sqlite3.Connection) -> None:
        """Go on from what was kept, as the process that the operation belongs to."""
        self.branches.go_back(kept)
        self.engine = self.branches.process()
        session = self.engine.get("op").session_id
        self.engine.lease = world.Process(self.branches.catalog, session)

    def _carry_out(self, part: PartRow, *, deaths: bool) -> None:
        self.edges += 1
        while part.state != DONE:
            part = self._transition(part)
            if deaths:
                self._die()

    def _transition(self, part: PartRow) -> PartRow:
        assert self.engine.advance(self.engine.get("op"), part)
        with self.branches.catalog.read() as conn:
            return operations.present_parts(conn, "op", [part.id])[part.id]

    def _die(self) -> None:
        self.deaths += 1
        self.branches.bury()
        self.engine = self.branches.process()
        assert self.engine.take_over() == ["op"]
