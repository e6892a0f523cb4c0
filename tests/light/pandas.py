"""In the place of pandas, for processes that tests start (``tests/processes.py``). The library does without
it, but PyArrow loads it where it is there, to see whether a list is one of its arrays: a quarter of what a
short process costs. A process that has loaded PySpark gets the real one, which PySpark asks for."""

import sys
from pathlib import Path

if "pyspark" not in sys.modules:
    raise ImportError("the processes of tests have no pandas")
sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]
del sys.modules["pandas"]
sys.path_importer_cache.pop(str(Path(__file__).parent), None)
__import__("pandas")
