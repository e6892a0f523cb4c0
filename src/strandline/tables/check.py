"""Checking a table: its files, the order of its rows, the rows against the recorded digest, and every index
against its projection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from strandline.catalog import commits
from strandline.catalog.stale import Ended
from strandline.errors import Corrupted, StrandlineError
from strandline.model import Chain, Digest, IndexDef, TableSchema
from strandline.runtime import Runtime
from strandline.storage import chain as fold
from strandline.storage import order
from strandline.storage.files import checksum_of
from strandline.tables.attempts import repeat
from strandline.tables.entries import state_digest
from strandline.tables.snapshot import Reader, TableView
from strandline.types.arrays import column_to_python


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: ``kind`` is missing_file, corrupt_file, unordered_rows (a row that is not
    where the order of its segment, the segment's recorded ends or its steps say), doubled_key,
    row_count_mismatch, digest_mismatch, missing_index_entry or dangling_index_entry; ``keys`` are up to five
    examples."""

    kind: str
    path: str
    message: str
    keys: list[tuple[Any, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class CheckReport:
    """What ``check`` found. ``ok`` when there is no problem."""

    path: str
    step: int
    rows: int
    digest: str
    problems: list[Problem]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {**asdict(self), "ok": self.ok}


def check(runtime: Runtime, path: str) -> CheckReport:
    """Recompute what was recorded about a table and its synchronous indexes from the data itself, and
    compare."""
    return repeat(runtime, lambda: _check(runtime, Reader(runtime), path))


def _check(runtime: Runtime, reader: Reader, path: str) -> CheckReport:
    view = reader.view(path)
    problems: list[Problem] = []
    recorded = _recorded(runtime, view, reader.snapshot.step)
    readable = _check_state(runtime, view, recorded, problems)
    for ref in view.info.indexes:
        impl = reader.index(view, ref)
        impl_recorded = _recorded(runtime, impl, reader.snapshot.step)
        impl_readable = _check_state(runtime, impl, impl_recorded, problems)
        if ref.definition.is_sync and readable and impl_readable:
            problems += _compare(runtime, view, ref.definition, impl)
    if problems and runtime.moments.lost_since(reader.snapshot.mark):
        raise Ended(0, "what it read has been collected meanwhile")
    return CheckReport(path, reader.snapshot.step, recorded.rows, recorded.hex, problems)


def _recorded(runtime: Runtime, view: TableView, step: int) -> Digest:
    with runtime.catalog.read() as conn:
        return commits.digest_at(conn, view.info.id, step)


def _check_state(runtime: Runtime, view: TableView, recorded: Digest, problems: list[Problem]) -> bool:
    """Whether the table's rows can be read at all; what is wrong with them is added to ``problems``."""
    damaged = list(damaged_files(runtime, view.info.path, view.chain))
    problems += damaged
    if any(p.kind == "missing_file" for p in damaged):
        return False
    files, schema, chain, settings = runtime.files, view.info.schema, view.chain, runtime.settings
    inside: list[order.Finding] = []
    if not damaged:
        inside = order.examine_all(files, schema, chain.segments, settings, lambda: runtime.spark)
        problems += _problems(view, inside)
        if any(finding.kind == "corrupt_file" for finding in inside):
            return False
    try:
        doubled = order.doubled_keys(
            files, schema, chain, settings, lambda: runtime.spark, ordered=not damaged and not inside
        )
        problems += _problems(view, doubled)
        actual = state_digest(runtime, schema, chain)
    except StrandlineError as error:
        if not damaged:
            problems.append(Problem("corrupt_file", view.info.path, error.message))
        return False
    if actual.rows != recorded.rows:
        problems.append(
            Problem(
                "row_count_mismatch",
                view.info.path,
                f"{actual.rows} rows are there, {recorded.rows} were recorded",
            )
        )
    if actual.value != recorded.value:
        problems.append(
            Problem(
                "digest_mismatch",
                view.info.path,
                f"the rows have the digest {actual.hex}, {recorded.hex} was recorded",
            )
        )
    return True


def _problems(view: TableView, findings: Iterable[order.Finding]) -> list[Problem]:
    return [
        Problem(finding.kind, view.info.path, finding.message, list(finding.keys)) for finding in findings
    ]


def damaged_files(runtime: Runtime, path: str, chain: Chain) -> Iterator[Problem]:
    """Segments that are missing or do not match their checksums."""
    for segment in chain.segments:
        if segment.file is None:
            if segment.data is None or checksum_of(segment.data) != segment.checksum:
                yield Problem(
                    "corrupt_file", path, f"the inline segment {segment.id} does not match its checksum"
                )
            continue
        if not runtime.files.exists(segment.file):
            yield Problem("missing_file", path, f"the file {segment.file} is missing")
            continue
        try:
            actual = runtime.files.checksum(segment.file)
        except Corrupted as error:
            yield Problem("corrupt_file", path, error.message)
            continue
        if actual != segment.checksum:
            yield Problem("corrupt_file", path, f"the file {segment.file} does not match its checksum")


def _compare(runtime: Runtime, view: TableView, index: IndexDef, impl: TableView) -> list[Problem]:
    if max(view.chain.rows_at_most, impl.chain.rows_at_most) > runtime.settings.bulk_rows:
        from strandline.storage.spark import verify

        found = verify.compare_index(
            runtime.spark, runtime.files, view.info.schema, view.chain, index, impl.info.schema, impl.chain
        )
        return [Problem(p.kind, impl.info.path, p.message, list(p.keys)) for p in found]
    names = impl.info.schema.names
    expected = _entries(runtime, view.info.schema, view.chain, names)
    actual = _entries(runtime, impl.info.schema, impl.chain, names)
    width = len(impl.info.schema.key)
    problems = []
    for kind, lost, said in (
        ("missing_index_entry", expected - actual, "rows have no entry"),
        ("dangling_index_entry", actual - expected, "entries have no row"),
    ):
        if lost:
            keys = sorted((entry[:width] for entry in lost), key=repr)[: order.EXAMPLES]
            problems.append(Problem(kind, impl.info.path, f"{lost.total()} {said}", keys))
    return problems


def _entries(
    runtime: Runtime, table: TableSchema, chain: Chain, names: tuple[str, ...]
) -> Counter[tuple[Any, ...]]:
    rows = fold.scan(runtime.files, table, chain, columns=names)
    columns = [[_comparable(v) for v in column_to_python(table[n].type, rows[n])] for n in names]
    return Counter(zip(*columns, strict=True))


def _comparable(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and value != value else value
