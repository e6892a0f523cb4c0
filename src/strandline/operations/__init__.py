"""The engine that carries out operations, and the kinds that need nothing but the catalog: copies and
streams."""
