"""The versions in a plan fit; else it is planned again, or the request fails with both versions."""

from __future__ import annotations

import pytest

from strandline.catalog import chains, paths
from strandline.catalog.cache import Loader, SchemeCache
from strandline.catalog.conflicts import Stale
from strandline.catalog.connection import Catalog
from strandline.clock import Clock
from strandline.errors import InvalidArgument, PathNotFound, SchemaMismatch, StrandlineError
from strandline.metrics import Metrics
from tests.catalog.test_cache import Held, alter, touch_index
from tests.catalogs import BY_N, BY_V, commit, counted, create, planned, poll, write
from tests.engines import move

IMPL = "/orders/by_v/indexImplTable"


class Setup:
    """A loader whose publications are held back by the test."""

    def __init__(self, catalog: Catalog, retries: int = 3) -> None:
        self.held = Held()
        self.metrics = Metrics()
        self.cache = SchemeCache(catalog, delivery=self.held)
        self.loader = Loader(self.cache, catalog.clock, retries=retries, metrics=self.metrics)

    def mismatches(self) -> tuple[float, float, float]:
        seen, cured, failed = (
            counted(self.metrics, "schema_mismatches_total", result=r) for r in ("seen", "cured", "failed")
        )
        return seen, cured, failed

    def news(self) -> None:
        """Deliver everything that was published so far."""
        poll(self.cache)
        self.held.release()
        poll(self.cache)


def test_a_plan_has_a_table_and_its_implementation_tables(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V, BY_N])
    create(catalog, "/plain", ())
    orders, plain, again = planned(Setup(catalog).loader, ["/orders", "plain", "orders"])
    assert [i.path for i in orders.impls] == [IMPL, "/orders/by_n/indexImplTable"]
    assert (plain.table.path, plain.impls, again) == ("/plain", (), orders)


def test_a_mismatch_in_the_cache_is_cured_by_a_retry(catalog: Catalog, clock: Clock) -> None:
    create(catalog, "/orders", [BY_V])
    setup = Setup(catalog)
    planned(setup.loader, ["/orders"])
    touch_index(catalog)
    poll(setup.cache)
    setup.held.release(IMPL)  # the table's own publication is late
    poll(setup.cache)
    planned(setup.loader, [IMPL])
    before = clock.now()
    (plan,) = planned(setup.loader, ["/orders"])
    assert (plan.table.version, plan.table.indexes[0].version, plan.impls[0].version) == (2, 2, 2)
    assert setup.mismatches() == (1, 1, 0)
    assert clock.now() - before == pytest.approx(0.1)


def test_a_mismatch_in_the_catalog_fails_after_the_retries_with_both_versions(
    catalog: Catalog, clock: Clock
) -> None:
    create(catalog, "/orders", [BY_V])
    setup = Setup(catalog)
    with catalog.write() as tx:  # as if a part had published its own change
        paths.set_version(tx, paths.require(tx.conn, IMPL).id, 2)
    before = clock.now()
    with pytest.raises(
        SchemaMismatch, match=rf"mismatch for {IMPL}: /orders expects version 1, got 2"
    ) as failure:
        planned(setup.loader, ["/orders"])
    assert failure.value.code == "SCHEMA_MISMATCH"
    assert clock.now() - before == pytest.approx(0.3)
    assert setup.mismatches() == (4, 0, 1)


def test_the_number_of_retries_is_a_setting(catalog: Catalog, clock: Clock) -> None:
    create(catalog, "/orders", [BY_V])
    with catalog.write() as tx:
        paths.set_version(tx, paths.require(tx.conn, IMPL).id, 2)
    before = clock.now()
    with pytest.raises(SchemaMismatch):
        planned(Setup(catalog, retries=0).loader, ["/orders"])
    assert clock.now() == before


def test_an_implementation_table_that_is_not_there_is_a_mismatch(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V])
    with catalog.write() as tx:
        paths.remove(tx, [paths.require(tx.conn, IMPL).id])
    with pytest.raises(SchemaMismatch, match="/orders expects version 1, but it is not there"):
        planned(Setup(catalog).loader, ["/orders"])


def test_a_plan_is_whole_before_the_news_and_after_it(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V])
    setup = Setup(catalog)
    planned(setup.loader, ["/orders"])
    touch_index(catalog)
    (stale,) = planned(setup.loader, ["/orders"])
    assert (stale.table.version, stale.impls[0].version) == (1, 1)
    setup.news()
    (fresh,) = planned(setup.loader, ["/orders"])
    assert (fresh.table.version, fresh.impls[0].version) == (2, 2)
    assert setup.mismatches() == (0, 0, 0)


def test_a_commit_with_an_old_plan_is_planned_again_and_never_half_applied(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V])
    setup = Setup(catalog)
    (stale,) = planned(setup.loader, ["/orders"])
    touch_index(catalog)
    (again,) = planned(setup.loader, ["/orders"])
    assert again == stale
    with catalog.read() as conn:
        before = [chains.state(conn, i) for i in (stale.table.id, stale.impls[0].id)]
    with pytest.raises(Stale, match="its version is 2, planned with 1"):
        commit(catalog, again.table, [(again.impls[0].id, again.impls[0].version)], 1)
    setup.news()
    (fresh,) = planned(setup.loader, ["/orders"])
    with pytest.raises(Stale):  # the table's version is right, the index's is not: nothing may be committed
        commit(catalog, fresh.table, [(fresh.impls[0].id, 1)], 1)
    with catalog.read() as conn:
        assert [chains.state(conn, i) for i in (stale.table.id, stale.impls[0].id)] == before
    commit(catalog, fresh.table, [(fresh.impls[0].id, fresh.impls[0].version)], 1)


def test_an_altered_table_is_planned_with_its_new_columns(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V])
    setup = Setup(catalog)
    planned(setup.loader, ["/orders"])
    alter(catalog, "/orders")
    setup.news()
    assert planned(setup.loader, ["/orders"])[0].table.version == 2


@pytest.mark.parametrize(
    ("path", "error"),
    [("/missing", PathNotFound), ("/orders/by_v", InvalidArgument), ("a//b", InvalidArgument)],
)
def test_what_is_not_a_table_cannot_be_planned(
    catalog: Catalog, path: str, error: type[StrandlineError]
) -> None:
    create(catalog, "/orders", [BY_V])
    with pytest.raises(error):
        planned(Setup(catalog).loader, [path])


def test_claims_are_not_in_a_plan(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V])
    with catalog.write() as tx:
        move(tx, "op", 1, paths.require(tx.conn, IMPL))
    (plan,) = planned(Setup(catalog).loader, ["/orders"])
    assert (plan.table.version, plan.impls[0].version) == (1, 1)
    write(catalog, "/orders", 1)
