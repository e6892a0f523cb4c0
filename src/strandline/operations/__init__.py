"""The engine that runs operations, and the kinds that only need the catalog: copies and streams."""
