"""Verification as an operation: any process resumes it, and it can be watched and cancelled.

After a crash the work is repeated from its beginning. Objects that were verified before are not read again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from strandline.backups.record import backup_heads, require_collection
from strandline.backups.verify.verification_history import Level
from strandline.backups.verify.verify import VerifyReport, verify_backups
from strandline.backups.verify.verify_request import VerifyRequest
from strandline.catalog.transactions import Writer
from strandline.errors import PreconditionFailed
from strandline.operations.kind import Body, Handler, Kind, Part, PartPlan, Plan, Planning, Run, pause_after
from strandline.records import Nothing, Record, later
from strandline.runtime import Runtime
from strandline.sql.tokens import word


@dataclass(frozen=True, kw_only=True)
class VerifyOperationRequest(Record):
    """Request to verify the backups of a collection.

    Attributes:
        newest: Verify only the last backup and the backups that it builds on.
        sample: Percentage of the objects to check. None: check the objects that were not verified before.
        at: Verify only this backup and the backups that it builds on.
        again: Also check objects that were verified before.
    """

    collection: str
    level: Level
    newest: bool = False
    sample: int | None = later()
    at: str | None = later()
    again: bool = later(False)


@dataclass(frozen=True, kw_only=True)
class VerifyOperationResult(Record):
    """Result of a verification.

    Attributes:
        because: Message of the first problem. None: no problem was found.
        newest_restorable: The newest backup that can be restored, as far as this level can tell. None: no
            backup can be restored.
    """

    collection: str
    level: Level
    backups: int
    problems: int
    because: str | None
    newest_restorable: str | None


@dataclass(frozen=True, kw_only=True)
class VerifyWork(Record):
    """The part of a verification.

    Attributes:
        at: Name of the backup to verify, together with the backups that it builds on. None: verify all
            backups.
        result: Result of the verification. None: the part is not done yet.
    """

    at: str | None
    result: VerifyOperationResult | None = later()


VerifyRun: TypeAlias = Run[VerifyOperationRequest, Body, Nothing]
TryRestoreOf: TypeAlias = Callable[[str, str], None]
"""Function that runs a trial restore, and raises its error.

Its arguments are the names of a collection and a backup.
"""


class VerificationPart(Handler[VerifyRun, VerifyWork]):
    """Part that verifies the backups and stores a summary of the report."""

    record = VerifyWork

    def __init__(self, runtime: Runtime, try_restore: TryRestoreOf) -> None:
        self._runtime = runtime
        self._try_restore = try_restore

    def work(self, run: VerifyRun, part: Part[VerifyWork]) -> VerifyReport:
        request = VerifyRequest.of(
            run.request.collection,
            at=part.body.at,
            level=run.request.level,
            sample=run.request.sample,
            again=run.request.again,
        )
        return verify_backups(self._runtime, request, self._try_restore)

    def store(self, tx: Writer, run: VerifyRun, part: Part[VerifyWork], made: Any) -> VerifyWork:
        report: VerifyReport = made
        return VerifyWork(
            at=part.body.at,
            result=VerifyOperationResult(
                collection=report.collection,
                level=report.level,
                backups=len(report.backups),
                problems=len(report),
                because=report[0].message if report else None,
                newest_restorable=report.newest_restorable,
            ),
        )

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        return pause_after(error, attempt, self._runtime.settings.pauses)


class VerifyBackups(Kind[VerifyOperationRequest, Body, Nothing]):
    """Operation that verifies the backups of a collection."""

    name = "verify backups"
    request, body, progress = VerifyOperationRequest, Body, Nothing

    def __init__(self, runtime: Runtime, try_restore: TryRestoreOf) -> None:
        self.handlers = {"verify": VerificationPart(runtime, try_restore)}

    def plan(self, tx: Writer, run: Planning[VerifyOperationRequest]) -> Plan[Body, Nothing]:
        path = require_collection(tx.conn, run.request.collection)
        heads = backup_heads(tx.conn, path)
        if not heads:
            raise PreconditionFailed(
                f"the collection {path.name!r} has no backup to verify",
                f"Take one: BACKUP {word(path.name)}.",
            )
        at = heads[-1][1].name if run.request.newest else run.request.at
        return Plan([PartPlan("verify", VerifyWork(at=at), path=path.path)], Body(), Nothing())

    def finish(self, tx: Writer, run: VerifyRun) -> VerifyOperationResult:
        (work,) = run.bodies(tx.conn, "verify", VerifyWork)
        assert work.result is not None
        return work.result
