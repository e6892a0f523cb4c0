"""The catalog: one SQL database that says what exists and at which version.

It is the only source of truth. This package never imports Spark or the storage.
"""
