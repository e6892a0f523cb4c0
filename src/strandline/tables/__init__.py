"""Rows and descriptions of tables: snapshots, transactions, reading, writing, DDL, indexes, checking,
housekeeping."""
