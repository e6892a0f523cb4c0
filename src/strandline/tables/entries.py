"""Index entries and digests derived from a table's rows: in this process for few rows, on Spark for many."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from strandline.model import STEP, Chain, Digest, IndexDef, Segment, TableSchema
from strandline.runtime import Runtime
from strandline.storage import chain as fold
from strandline.storage.digest import digest_of, row_hashes
from strandline.storage.segment import write_segment


def state_digest(runtime: Runtime, table: TableSchema, chain: Chain) -> Digest:
    """Row count and digest of a state, computed from its rows."""
    if chain.rows_at_most <= runtime.settings.bulk_rows:
        rows = fold.scan(runtime.files, table, chain)
        return digest_of(*row_hashes(table, {name: rows[name] for name in table.names}))
    from strandline.storage.spark import verify

    return verify.state_digest(runtime.spark, runtime.files, table, chain)


def index_entries(
    runtime: Runtime, table: TableSchema, chain: Chain, index: IndexDef, impl: TableSchema, name: str
) -> tuple[tuple[Segment, ...], Digest]:
    """All entries of an index for the state of ``chain``, as base segments under the fresh name ``name``, and
    their digest."""
    if chain.rows_at_most > runtime.settings.bulk_rows:
        from strandline.storage.spark import bulk

        segments, digest = bulk.build_index(runtime.spark, runtime.files, table, chain, index, impl, name)
        return tuple(replace(s, upto=chain.step) for s in segments), digest
    rows = fold.scan(runtime.files, table, chain, columns=impl.names).select(list(impl.names))
    if rows.num_rows == 0:
        return (), Digest()
    digest = digest_of(*row_hashes(impl, {n: rows[n] for n in impl.names}))
    stepped = rows.append_column(STEP, pa.array([chain.step] * rows.num_rows, pa.int64()))
    segment = write_segment(
        runtime.files,
        impl,
        stepped,
        name=f"{name}.parquet",
        role="base",
        fresh=True,
        stepped=True,
        upto=chain.step,
    )
    return (segment,), digest


def projection_digest(runtime: Runtime, table: TableSchema, chain: Chain, impl: TableSchema) -> Digest:
    """The digest that an index with the implementation schema ``impl`` must have to fit the table."""
    if chain.rows_at_most <= runtime.settings.bulk_rows:
        rows = fold.scan(runtime.files, table, chain, columns=impl.names)
        return digest_of(*row_hashes(impl, {name: rows[name] for name in impl.names}))
    from strandline.storage.spark import scan, write

    return write.digest_of(scan.scan(runtime.spark, runtime.files, table, chain, impl.names), impl)
