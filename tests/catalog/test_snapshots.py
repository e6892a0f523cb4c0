"""Snapshots: a statement reads everything at one step, and collected files are not reported as damage."""

from __future__ import annotations

import pytest
from sqlalchemy import delete

from strandline.catalog import chains, definitions, garbage_collection, paths, sessions, sqltables
from strandline.catalog.cache import Loader, SchemeCache
from strandline.catalog.conflicts import Stale
from strandline.catalog.connection import Catalog
from strandline.catalog.sessions import Session
from strandline.catalog.snapshots import Moments, Named
from strandline.catalog.tables import TableInfo
from strandline.catalog.transactions import current_step
from strandline.errors import PathNotFound, PreconditionFailed
from tests.catalog.conftest import Clock
from tests.catalog.examples import BY_N, BY_V, commit, create, segment

GRACE = 60.0
IMPL = "/t/by_v/indexImplTable"


@pytest.fixture
def session(catalog: Catalog) -> Session:
    return Session(catalog, 60.0, GRACE)


@pytest.fixture
def moments(catalog: Catalog, session: Session) -> Moments:
    return Moments(catalog, Loader(SchemeCache(catalog), catalog.clock), session)


def alter(catalog: Catalog, path: str) -> None:
    with catalog.write() as tx:
        info = TableInfo.of(paths.require(tx.conn, path))
        definitions.alter(tx, info)


def drop(catalog: Catalog, path: str) -> None:
    with catalog.write() as tx:
        definitions.drop(tx, paths.require(tx.conn, path))


def sweep(catalog: Catalog) -> None:
    with catalog.write() as tx:
        garbage_collection.sweep(tx, history_seconds=0.0, grace_seconds=GRACE)


def test_whoever_will_write_gets_the_synchronous_indexes(catalog: Catalog, moments: Moments) -> None:
    create(catalog, "/t", [BY_V, BY_N])
    assert set(moments.read([Named("/t", writes=True)]).tables) == {"/t", IMPL}
    assert set(moments.read([Named("/t", index="by_v")]).tables) == {"/t", IMPL}
    assert set(moments.read([Named("/t")]).tables) == {"/t"}


def test_a_later_table_is_read_at_the_same_step(catalog: Catalog, moments: Moments) -> None:
    t, u = create(catalog, "/t", [BY_V]), create(catalog, "/u")
    commit(catalog, u, segment())
    moment = moments.read([Named("/t")])
    commit(catalog, u, segment())
    alter(catalog, "/u")
    create(catalog, "/late")
    found = moments.table(moment, "/u")
    assert (found.info.version, len(found.chain.segments), found.chain.step) == (1, 1, moment.step)
    assert moments.index(moment, moment.tables["/t"].info, t.indexes[0]).chain.step == moment.step
    with pytest.raises(Stale, match="created, restored or renamed after step"):
        moments.table(moment, "/late")


def test_what_is_not_there_is_told_to_the_one_who_asks_for_it(catalog: Catalog, moments: Moments) -> None:
    create(catalog, "/t")
    moment = moments.read([Named("/t"), Named("/nowhere")])
    assert moments.table(moment, "/t").info.path == "/t"
    create(catalog, "/nowhere")
    with pytest.raises(PathNotFound, match="/nowhere"):
        moments.table(moment, "/nowhere")


def test_a_step_that_is_no_longer_kept_is_refused(catalog: Catalog, moments: Moments, clock: Clock) -> None:
    t = create(catalog, "/t")
    commit(catalog, t, segment())
    moment = moments.read()
    with catalog.write() as tx:
        old = chains.load(tx.conn, t.id, current_step(tx.conn)).segments
        chains.replace(tx, t.id, old, merged=False)
    clock.sleep(GRACE)
    sweep(catalog)
    with pytest.raises(Stale, match="no longer kept"):
        moments.table(moment, "/t")
    past = moments.read([Named("/t")], moment.step)
    with pytest.raises(PreconditionFailed, match="no longer kept"):
        moments.table(past, "/t")


def test_what_was_collected_is_told_apart_from_damage(
    catalog: Catalog, moments: Moments, clock: Clock
) -> None:
    t = create(catalog, "/t")
    commit(catalog, t, segment(file=True))
    mark = moments.mark()
    moment = moments.read([Named("/t")])
    assert moment.segments
    assert not moments.is_lost_since(mark), "a file that is missing now is damage"
    drop(catalog, "/t")
    clock.sleep(GRACE - 1)
    sweep(catalog)
    assert not moments.is_lost_since(mark), "it is left alone for a while"
    clock.sleep(1)
    sweep(catalog)
    assert moments.is_lost_since(mark)
    assert not moments.is_lost_since(moments.mark()), "nothing has been read since"


def test_a_moment_that_is_said_to_be_read_loses_nothing(
    catalog: Catalog, moments: Moments, session: Session, clock: Clock
) -> None:
    t = create(catalog, "/t")
    commit(catalog, t, segment(file=True))
    mark = moments.mark()
    moment = moments.read([Named("/t")])
    drop(catalog, "/t")
    for _ in range(5):
        clock.sleep(GRACE / 2)
        session._extend()
        sweep(catalog)
        assert not moments.is_lost_since(mark)
    del moment
    session._extend()
    with catalog.read() as conn:
        assert sessions.oldest_read(conn) is None
    session.close()


def test_files_that_were_not_committed_go_with_their_session(
    catalog: Catalog, moments: Moments, session: Session
) -> None:
    session.file_name(1)
    mark = moments.mark()
    assert not moments.is_lost_since(mark)
    with catalog.write() as tx:
        tx.conn.execute(delete(sqltables.sessions))
    assert moments.is_lost_since(mark)
    session.confirm()
    assert moments.is_lost_since(mark), "it has another session now, and another mark"
    assert not moments.is_lost_since(moments.mark())
    session.close()
