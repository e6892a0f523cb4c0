"""Any two of backup, increment, restore, DDL and drop at the same time.

Each is done or refused, and the final state is one that the statements give one after the other.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.backups.branches import Branches
from tests.backups.pairs import Outcome, Pair
from tests.backups.reading import backups, open_at
from tests.backups.test_orders import make
from tests.effort import EVERY

STATEMENTS = {
    "backup": "BACKUP c",
    "incremental": "BACKUP c INCREMENTAL",
    "restore": "RESTORE c INTO 'r'",
    "replace": "RESTORE c TABLE t WITH (REPLACE = 'true')",
    "column": "ALTER TABLE t ADD COLUMN x Int64",
    "index": "ALTER TABLE t ADD INDEX by_both GLOBAL SYNC ON (v, n)",
    "drop table": "DROP TABLE t",
    "drop backup": "DROP BACKUP c 'LAST' CONFIRM",
    "drop collection": "DROP BACKUP COLLECTION c",
}
BUSY = {"UNDER_OPERATION", "CONFLICT"}


class Pairs(Pair):
    def __init__(self, branches: Branches, last: str) -> None:
        super().__init__(branches)
        self.statements = {name: text.replace("LAST", last) for name, text in STATEMENTS.items()}
        self._known: dict[tuple[str, ...], tuple[list[Outcome], Any]] = {}

    def one_after_the_other(self, *names: str) -> tuple[list[Outcome], Any]:
        if names not in self._known:
            self._known[names] = self.alone([self.statements[name] for name in names])
        return self._known[names]

    def check(self, first: str, second: str, at: int, upto: int | None) -> list[Outcome]:
        told, found = self.run(self.statements[first], self.statements[second], at, upto)
        turns = self.turns
        assert self.seen == [], "a reader could see versions that do not fit"
        assert found[2] == [], "something is left over"
        names = {first: told[0], second: told[1]} if first != second else None
        done = [name for name, each in zip((first, second), told, strict=True) if each == "done"]
        assert done, told
        orders = [self.one_after_the_other(*order) for order in set(itertools.permutations(done))]
        assert found in [expected for _, expected in orders], (told, done)
        for name, each in (names or {first: told[1]}).items():
            if each != "done" and each not in BUSY:
                other = second if name == first else first
                assert each == self.one_after_the_other(other, name)[0][1], (
                    f"{name} was refused for no reason"
                )
        self.turns = turns
        return told


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    folder = tmp_path_factory.mktemp("pairs") / "w"
    branches = Branches(folder, make)
    with open_at(folder) as db:
        last = backups(db)[-1]
    yield Pairs(branches, last)
    branches.close()


@pytest.mark.slow
def test_any_two_at_the_same_time(pairs: Pairs) -> None:
    """Run each pair, or a part of them, once, at random places."""
    random_ = random.Random(3)
    told = set()
    for one, two in [*itertools.combinations_with_replacement(STATEMENTS, 2)][:: 1 if EVERY else 4]:
        first, second = random_.sample((one, two), 2)
        told |= set(pairs.check(first, second, random_.randint(1, 12), random_.choice((None, 1, 2, 5, 12))))
    assert {"done", "UNDER_OPERATION"} <= told


@pytest.mark.skipif(not EVERY, reason="takes many minutes; make exhaustive runs it")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", STATEMENTS)
def test_any_two_at_every_place(pairs: Pairs, first: str) -> None:
    """Run the second statement after every transaction of the first.

    If it is not refused at once, it also pauses, after every third of its transactions, until the first is
    done.
    """
    for second in STATEMENTS:
        at, is_over = 1, False
        while not is_over:
            pairs.check(first, second, at, None)
            (turns, others), is_over = pairs.turns, pairs.turns[0] <= at
            for upto in range(1 + at % 3, others, 3):
                pairs.check(first, second, at, upto)
            assert turns >= 1
            at += 1
