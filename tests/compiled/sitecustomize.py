"""Spark puts its own package, in an archive, at the head of the path of each Python process that it starts,
and in an archive nothing is compiled: to compile it again was two thirds of what such a process took to
start. The same package is installed, and compiled."""

import sys

sys.path[:] = [path for path in sys.path if not path.endswith("pyspark.zip")]
