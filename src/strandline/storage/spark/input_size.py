"""Estimate how many bytes a caller's DataFrame has, without a job, from the statistics of Spark's plan.

They are asked for by EXPLAIN COST, because Spark Connect has them nowhere else. What the sources of the plan
have is added up: Spark's own estimate of a join is the product of its sides. Filters and aggregates make less
of it, which does no harm, because adaptive execution joins partitions that are too small.
"""

from __future__ import annotations

import re
from uuid import uuid4

from pyspark.sql import DataFrame

from strandline.names import quote_spark

__all__ = ["estimate_bytes", "read_estimate"]

UNKNOWN = 1 << 60
"""Sources without statistics have Spark's ``defaultSizeInBytes``, which is larger than this."""
_LINE = re.compile(r"^([ :+-]*)([A-Z]\w*).*, Statistics\(sizeInBytes=([0-9.E+]+) (B|[KMGTPE]iB)[,)]")
_UNITS = {unit: 1024**power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))}
_GROWING = re.compile(r"Generate|Expand|Map|FlatMap|CoGroup|BatchEvalPython|.*RDD|.*UDT?F")
"""Nodes after which rows may be many more, or larger, than what the sources have."""


def estimate_bytes(df: DataFrame) -> int | None:
    """Return the approximate size of the sources of a DataFrame; None if it is not known."""
    view = f"strandline_{uuid4().hex}"
    df.createOrReplaceTempView(view)
    try:
        found = df.sparkSession.sql(f"EXPLAIN COST SELECT * FROM {quote_spark(view)}").collect()
    finally:
        df.sparkSession.catalog.dropTempView(view)
    return read_estimate(found[0][0])


def read_estimate(text: str) -> int | None:
    """Return the total size of the sources in the text of EXPLAIN COST."""
    logical = text.partition("== Optimized Logical Plan ==")[2].partition("== Physical Plan ==")[0]
    nodes = [found for line in logical.splitlines() if (found := _LINE.match(line))]
    if not nodes or any(_GROWING.match(node[2]) for node in nodes):
        return None
    depths = [*(len(node[1]) for node in nodes), 0]
    leaves = [node for node, here, next_ in zip(nodes, depths, depths[1:], strict=False) if next_ <= here]
    total = sum(int(float(leaf[3]) * _UNITS[leaf[4]]) for leaf in leaves)
    return total if total < UNKNOWN else None
