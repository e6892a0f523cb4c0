"""What can be decided in the process: constants, conditions, ranges of keys, assignments, and queries simple
enough for it."""
