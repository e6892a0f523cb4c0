"""The operation engine, and one module per kind of operation."""
