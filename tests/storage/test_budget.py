"""The limits of work in this process."""

from __future__ import annotations

from strandline.settings import Settings
from strandline.storage.budget import COPIED, FOLDED, HASHED, Budget


def test_a_limit_itself_fits() -> None:
    budget = Budget(10, 100)
    assert budget.fits(rows=10, bytes=100) and budget.fits()
    assert not budget.fits(rows=11) and not budget.fits(bytes=101)
    assert not Budget(-1, 100).fits(rows=0), "-1 sends even no rows to Spark"
    assert Budget(-1, 100).fits(bytes=100), "but files may be copied here"


def test_work_that_holds_less_in_memory_gets_more() -> None:
    settings = Settings(bulk_rows=10, bulk_bytes=100, scan_rows=20)
    statement, query = Budget.for_statements(settings), Budget.for_queries(settings)
    assert (statement, query) == (Budget(10, 100), Budget(20, 100))
    assert statement.folded == Budget(10 * FOLDED, 100)
    assert query.streamed == Budget(20 * HASHED, 100 * COPIED)
