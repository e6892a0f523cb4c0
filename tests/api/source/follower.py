"""A process that follows a changefeed until it is killed.

Run with ``python -m tests.api.source.follower WAREHOUSE CHECKPOINT``.
"""

from __future__ import annotations

import sys

import strandline


def main(warehouse: str, checkpoint: str) -> None:
    db = strandline.connect(warehouse, settings=strandline.Settings(spark={"spark.master": "local[1]"}))
    place = {"warehouse": warehouse}
    changes = db.spark.readStream.format("strandline").options(**place).option("changefeed", "/t/f").load()
    query = (
        changes.select("k", "v", "n")
        .writeStream.format("strandline")
        .options(**place)
        .option("checkpointLocation", checkpoint)
        .start("/u")
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
