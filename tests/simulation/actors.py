"""The processes of a simulated history, their clock, and the delivery of publications to them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from strandline.catalog import paths
from strandline.catalog.cache import Loader, SchemeCache
from strandline.catalog.connection import Catalog
from strandline.catalog.operations import OperationRow, PartRow
from strandline.catalog.paths import Path
from strandline.catalog.publication_log import Publication
from strandline.catalog.transactions import Writer
from strandline.catalog.versions import Claim, Claimed, HeldClaim, VersionRegistry, Wish
from strandline.metrics import Metrics
from strandline.operations.engine import Engine
from strandline.operations.transitions import Transitions
from tests import engines
from tests.catalogs import ManualClock
from tests.engines import Process, Shuffled


class SimClock(ManualClock):
    """A clock that lets others act while a process sleeps."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.meanwhile()


class Post:
    """The delivery of publications to one process.

    Some arrive at the next poll, some much later, some twice, in any order.
    """

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.waiting: list[tuple[float, Publication]] = []

    def __call__(self, new: list[Publication]) -> list[Publication]:
        self.waiting += [(self.random.choice((0.03, 0.6)), publication) for publication in new]
        arriving, late = [], []
        for chance, publication in self.waiting:
            arrives = self.random.random() < chance
            if arrives:
                arriving.append(publication)
            if not arrives or self.random.random() < 0.1:
                late.append((chance, publication))
        self.waiting = late
        self.random.shuffle(arriving)
        return arriving


class EagerRegistry(VersionRegistry):
    """A registry with a defect: a part that claims a version publishes it before its siblings are done."""

    def claim_all(self, tx: Writer, operation_id: str, wishes: Sequence[Wish]) -> list[Claim]:
        known = set(self.list_claims(tx.conn, [wish.path.id for wish in wishes]))
        claims = super().claim_all(tx, operation_id, wishes)
        for wish, claim in zip(wishes, claims, strict=True):
            if wish.path.id not in known and isinstance(claim, Claimed):
                paths.set_version(tx, wish.path.id, claim.version)
                paths.publish(tx, [wish.path._replace(version=claim.version)])
                known.add(wish.path.id)
        return claims

    def _write(self, tx: Writer, held: Sequence[HeldClaim], known: Mapping[int, Path]) -> None:
        """Do nothing: the versions are stored already."""


class Actor:
    """A process: its session, engine and cache."""

    def __init__(
        self,
        catalog: Catalog,
        name: str,
        random_: random.Random,
        new_id: Callable[[], str],
        metrics: Metrics,
        *,
        eager: bool,
    ) -> None:
        self.name = name
        transitions = Transitions(
            catalog,
            Process(catalog, name),
            engines.kinds(),
            metrics=metrics,
            scheduler=Shuffled(random_),
            registry=EagerRegistry() if eager else VersionRegistry(),
        )
        self.engine = Engine(transitions, new_id=new_id)
        self.cache = SchemeCache(catalog, delivery=Post(random_), metrics=metrics)
        self.loader = Loader(self.cache, catalog.clock, metrics=metrics)
        self.memory: tuple[OperationRow, PartRow] | None = None
        """The transition that it was about to make when it stopped."""
