"""The open transaction of each thread. A statement runs in it, or in a transaction of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from strandline.api.operation_runner import OperationRunner
from strandline.cancellation import Interrupted
from strandline.catalog.conflicts import Stale
from strandline.errors import PreconditionFailed, UnderOperation
from strandline.runtime import Runtime
from strandline.tables.attempts import StatementAttempts

if TYPE_CHECKING:
    from strandline.api.database import Database
    from strandline.api.result import Result
    from strandline.catalog.snapshots import Named
    from strandline.sql import statements as st
    from strandline.storage.rows import RowCounts
    from strandline.tables.snapshot import Reader
    from strandline.tables.transaction import Transaction

T = TypeVar("T")


class Transactions:
    """The transactions of a ``Database``. Thread-safe; each thread has at most one.

    Args:
        guard: wraps each call of the user; translates errors.
        operations: completes operations of dead processes that block a statement.
    """

    def __init__(
        self,
        runtime: Runtime,
        guard: Callable[[], AbstractContextManager[None]],
        operations: OperationRunner,
    ) -> None:
        self._runtime = runtime
        self._guard = guard
        self._operations = operations
        self._local = threading.local()
        self.attempts = StatementAttempts(runtime, self._carry_on)

    @property
    def current(self) -> Transaction | None:
        """The open transaction of this thread."""
        return getattr(self._local, "transaction", None)

    def begin(self, *, in_block: bool = False) -> None:
        """Open a transaction of this thread.

        Args:
            in_block: the transaction belongs to a ``with`` block, and only the end of the block ends it.
        """
        with self._guard():
            if self.current is not None:
                raise PreconditionFailed(
                    "a transaction is already open in this thread",
                    "Transactions cannot be nested; finish that one first.",
                )
            tx = self._open()
            tx.snapshot.take()
            self._local.transaction, self._local.in_block = tx, in_block

    def commit(self, *, in_block: bool = False) -> tuple[int | None, RowCounts]:
        """Commit the open transaction; return its step and the numbers of changed rows.

        The step is None if nothing was changed. If the commit fails, the transaction has ended as well.
        """
        with self._guard():
            tx = self._end(in_block=in_block)
            try:
                with self.attempts.once(tx.snapshot.mark):
                    return tx.commit(), tx.changed
            except (Exception, Interrupted):  # Any other KeyboardInterrupt may come after the commit.
                tx.abort()
                raise

    def rollback(self) -> None:
        """Discard the changes of the open transaction."""
        with self._guard():
            self._end(in_block=False).abort()

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Run a ``with`` block as one transaction. An exception discards its changes."""
        self.begin(in_block=True)
        try:
            yield
        except BaseException:
            self._end(in_block=True).abort()
            raise
        self.commit(in_block=True)

    def close(self) -> None:
        """Discard the open transaction of this thread, unless it belongs to a ``with`` block."""
        if self.current is not None and not self._local.in_block:
            self.rollback()

    def change(
        self,
        run: Callable[[Transaction], None],
        named: Sequence[Named] = (),
        before_abort: Callable[[Transaction], None] = lambda tx: None,
    ) -> tuple[int | None, RowCounts]:
        """Run changes in the open transaction, or in a new transaction that is retried when it is stale.

        Return the step of the commit and the numbers of changed rows. The step is None inside an open
        transaction, or if nothing was changed.

        Args:
            run: makes the changes.
            named: the tables that ``run`` uses. Their descriptions are read together.
            before_abort: called before the files of a stale transaction are removed.
        """
        open_one = self.current
        if open_one is not None:
            before = open_one.changed
            with self.attempts.once(open_one.snapshot.mark), open_one.savepoint():
                run(open_one)
            return None, open_one.changed - before

        def attempt() -> tuple[int | None, RowCounts]:
            tx = self._open(named)
            try:
                run(tx)
                return tx.commit(), tx.changed
            except (Stale, UnderOperation):
                with contextlib.ExitStack() as at_the_end:
                    at_the_end.callback(tx.abort)
                    before_abort(tx)
                raise
            except (Exception, Interrupted):
                tx.abort()
                raise

        done = self.attempts.run(attempt)
        self._operations.note_change()
        return done

    def read(self, run: Callable[[Reader], T], named: Sequence[Named] = ()) -> T:
        """Read in the open transaction, or from a new snapshot, with retries when the snapshot is stale.

        Args:
            run: reads the rows, and returns the result of this method.
            named: the tables that ``run`` uses. Their descriptions are read together.
        """
        from strandline.tables.snapshot import Reader, Snapshot

        open_one = self.current
        if open_one is not None:
            with self.attempts.once(open_one.snapshot.mark):
                return run(open_one)
        return self.attempts.run(lambda: run(Reader(self._runtime, Snapshot(self._runtime, named=named))))

    def _open(self, named: Sequence[Named] = ()) -> Transaction:
        from strandline.tables.transaction import Transaction

        return Transaction(self._runtime, named)

    def _end(self, *, in_block: bool) -> Transaction:
        tx = self.current
        if tx is None:
            raise PreconditionFailed("no transaction is open", "Open one with BEGIN.")
        if self._local.in_block != in_block:
            raise PreconditionFailed(
                "this transaction ends with the block of db.transaction()",
                "Leave the block to commit it, or raise an exception to discard it.",
            )
        self._local.transaction = None
        return tx

    def _carry_on(self, operation_id: str | None) -> bool:
        if operation_id is None or self.current is not None:
            return False
        return self._operations.engine.carry_on(operation_id)


def begin(db: Database, _: st.Begin) -> Result:
    """Run BEGIN."""
    from strandline.api.result import Result

    db._transactions.begin()
    return Result()


def commit(db: Database, _: st.Commit) -> Result:
    """Run COMMIT."""
    from strandline.api.result import Result

    return Result.of_change(*db._transactions.commit())


def rollback(db: Database, _: st.Rollback) -> Result:
    """Run ROLLBACK."""
    from strandline.api.result import Result

    db._transactions.rollback()
    return Result()
