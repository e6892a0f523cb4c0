"""In the place of pandas, for processes that tests start (``tests/processes.py``). The library does without
it, but PyArrow loads it where it is there, to see whether a list is one of its arrays: a quarter of what a
short process costs."""

raise ImportError("the processes of tests have no pandas")
