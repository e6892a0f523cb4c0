"""Estimate the size of a caller's DataFrame in bytes, from the statistics of Spark's plan, without a job.

EXPLAIN COST returns the statistics; with Spark Connect there is no other way to get them. The estimate is the
sum of the sizes of the plan's sources. Spark's own estimate is not used, because for a join it is the product
of both sides. If filters and aggregates reduce the rows, the estimate is too high. This does no harm, because
adaptive execution joins partitions that are too small.
"""

from __future__ import annotations

import re
from uuid import uuid4

from pyspark.sql import DataFrame

from strandline.names import quote_spark

__all__ = ["estimate_bytes", "read_estimate"]

UNKNOWN = 1 << 60
"""Estimates of this size and above are ignored.

Spark gives sources without statistics the size ``defaultSizeInBytes``, which is larger than this.
"""
_LINE = re.compile(r"^([ :+-]*)([A-Z]\w*).*, Statistics\(sizeInBytes=([0-9.E+]+) (B|[KMGTPE]iB)[,)]")
_UNITS = {unit: 1024**power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))}
_GROWING = re.compile(r"Generate|Expand|Map|FlatMap|CoGroup|BatchEvalPython|.*RDD|.*UDT?F")
"""Matches plan nodes whose output may be much larger than the sources: the size is then not known."""


def estimate_bytes(df: DataFrame) -> int | None:
    """Return the approximate size of a DataFrame's sources in bytes; None if it is not known."""
    view = f"strandline_{uuid4().hex}"
    df.createOrReplaceTempView(view)
    try:
        found = df.sparkSession.sql(f"EXPLAIN COST SELECT * FROM {quote_spark(view)}").collect()
    finally:
        df.sparkSession.catalog.dropTempView(view)
    return read_estimate(found[0][0])


def read_estimate(text: str) -> int | None:
    """Return the total size of the sources in the text of EXPLAIN COST; None if it is not known."""
    logical = text.partition("== Optimized Logical Plan ==")[2].partition("== Physical Plan ==")[0]
    nodes = [found for line in logical.splitlines() if (found := _LINE.match(line))]
    if not nodes or any(_GROWING.match(node[2]) for node in nodes):
        return None
    depths = [*(len(node[1]) for node in nodes), 0]
    leaves = [node for node, here, next_ in zip(nodes, depths, depths[1:], strict=False) if next_ <= here]
    total = sum(int(float(leaf[3]) * _UNITS[leaf[4]]) for leaf in leaves)
    return total if total < UNKNOWN else None
