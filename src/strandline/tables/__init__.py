"""Tables: snapshots, transactions, reads, writes, DDL, indexes, checks and housekeeping."""
