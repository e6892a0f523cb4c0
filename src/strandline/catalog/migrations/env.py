"""Alembic's entry point: runs the migrations on the connection that ``catalog.migrate`` hands over."""

from alembic import context

from strandline.catalog.sqltables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
