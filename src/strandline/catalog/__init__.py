"""What exists, at which version: one SQL database, the only source of truth. Never imports Spark or
storage."""
