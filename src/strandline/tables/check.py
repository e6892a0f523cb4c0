"""Check tables for damage.

1. Check the files of the table and its indexes: existence, checksums, order of rows.
2. Check the rows: unique keys, and the recorded row count and digest.
3. Compare each synchronous index with its projection of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from strandline.cancellation import Phase, phase
from strandline.catalog import tables
from strandline.catalog.conflicts import Ended
from strandline.errors import StrandlineError
from strandline.model import Digest, Segment, TableSchema
from strandline.runtime import Runtime
from strandline.storage.order import Finding
from strandline.tables.attempts import StatementAttempts
from strandline.tables.snapshot import Reader, TableView
from strandline.tables.unique import UniqueIndex


@dataclass(frozen=True)
class Problem:
    """A problem of a table.

    Attributes:
        kind: missing_file, corrupt_file, unordered_rows (a row violates the order of its segment, or the
            recorded range of its keys or steps), doubled_key, row_count_mismatch, digest_mismatch,
            missing_index_entry, dangling_index_entry or doubled_index_key (several rows have the same key in
            a unique index).
        path: path of the table, or of the implementation table of an index.
        message: description of the problem.
        keys: up to five example keys; for doubled_index_key, pairs of entries.
    """

    kind: str
    path: str
    message: str
    keys: list[tuple[Any, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class CheckReport:
    """The result of ``check``."""

    path: str
    step: int
    rows: int
    digest: str
    problems: list[Problem]

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {**asdict(self), "ok": self.ok}


def check(runtime: Runtime, path: str) -> CheckReport:
    """Check the files and rows of a table and its indexes; compare its synchronous indexes with the table."""
    return StatementAttempts(runtime).repeat(lambda: _check(runtime, Reader(runtime), path))


def _check(runtime: Runtime, reader: Reader, path: str) -> CheckReport:
    view = reader.view(path)
    with phase(f"checking {path}", 1 + len(view.info.indexes), "tables and indexes") as checking:
        return _compare_table(runtime, reader, view, checking)


def _compare_table(runtime: Runtime, reader: Reader, view: TableView, checking: Phase) -> CheckReport:
    problems: list[Problem] = []
    recorded = _recorded_digest(runtime, view, reader.snapshot.step)
    impls = {ref.name: reader.index(view, ref) for ref in view.info.indexes}
    size = sum(s.bytes for v in (view, *impls.values()) for s in v.chain.segments)
    derived = [ref.name for ref in view.info.indexes if ref.definition.is_sync]
    # One pass over the table also computes the digests that its indexes must have.
    schemas = [impls[name].info.schema for name in derived]
    found = _check_state(runtime, view, recorded, problems=problems, among=size, impls=schemas)
    expected = dict(zip(derived, found[1:], strict=False))
    checking.advance()
    for ref in view.info.indexes:
        impl = impls[ref.name]
        recorded_here = _recorded_digest(runtime, impl, reader.snapshot.step)
        held = _check_state(runtime, impl, recorded_here, problems=problems, among=size)
        if ref.name in expected and held:
            if held != [expected[ref.name]]:
                differing = runtime.store.checks.compare_index(view.state, impl.state, ref.definition.name)
                problems += _problems(impl.info.path, differing)
            if ref.unique:
                unique = UniqueIndex(view.info, ref.definition, impl.state)
                problems += _problems(impl.info.path, unique.findings(runtime.store))
        checking.advance()
    if problems and runtime.moments.is_lost_since(reader.snapshot.mark):
        raise Ended(0, "the files that it read were garbage-collected meanwhile")
    return CheckReport(view.info.path, reader.snapshot.step, recorded.rows, recorded.hex, problems)


def _recorded_digest(runtime: Runtime, view: TableView, step: int) -> Digest:
    with runtime.catalog.read() as conn:
        return tables.digest_at(conn, view.info.id, step)


def _check_state(
    runtime: Runtime,
    view: TableView,
    recorded: Digest,
    *,
    problems: list[Problem],
    among: int,
    impls: Sequence[TableSchema] = (),
) -> list[Digest]:
    """Check the files and the rows of a table or an index; add what is wrong to ``problems``.

    Return the digest of the rows, followed by the digests of their projections to the schemas ``impls``.
    Return an empty list if the rows cannot be read.

    Args:
        recorded: digest that the catalog has recorded.
        among: size of the table and its indexes in bytes.
        impls: schemas of implementation tables of the table's indexes.
    """
    damaged = list(find_damaged_files(runtime, view.info.path, view.chain.segments, among))
    problems += damaged
    if any(p.kind == "missing_file" for p in damaged):
        return []
    store, path = runtime.store, view.info.path
    inside: list[Finding] = []
    if not damaged:
        inside = store.checks.examine(view.info.schema, view.chain.segments, among=among)
        problems += _problems(path, inside)
        if any(finding.kind == "corrupt_file" for finding in inside):
            return []
    try:
        doubled = store.checks.find_doubled_keys(view.state, ordered=not damaged and not inside)
        problems += _problems(path, doubled)
        actual, *derived = store.checks.digests(view.state, [view.info.schema, *impls], among=among)
    except StrandlineError as error:
        if not damaged:
            problems.append(Problem("corrupt_file", path, error.message))
        return []
    if actual.rows != recorded.rows:
        problems.append(
            Problem(
                "row_count_mismatch",
                path,
                f"the table has {actual.rows} rows, {recorded.rows} were recorded",
            )
        )
    if actual.value != recorded.value:
        problems.append(
            Problem(
                "digest_mismatch",
                path,
                f"the rows have the digest {actual.hex}, {recorded.hex} was recorded",
            )
        )
    return [actual, *derived]


def find_damaged_files(
    runtime: Runtime, path: str, segments: Sequence[Segment], among: int
) -> Iterator[Problem]:
    """Yield a problem for each segment that is missing or does not match its checksum.

    Args:
        path: path of the table, for the problems.
        among: number of bytes that the caller reads in total.
    """
    yield from _problems(path, runtime.store.checks.find_damaged(segments, among=among))


def _problems(path: str, findings: Iterable[Finding]) -> Iterator[Problem]:
    for finding in findings:
        yield Problem(finding.kind, path, finding.message, list(finding.keys))
