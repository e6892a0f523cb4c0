"""Storage: how rows are stored in files, and how a state is read, with Arrow or on Spark."""
