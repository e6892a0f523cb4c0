"""``format("strandline")``: tables and changefeeds for Spark, by its Python data source API.

Spark runs all of it in processes of its own: what plans and commits where its driver is, what reads and
writes rows on executors. So nothing here has the connection of the process that asked, and every process
opens the warehouse that the options name, or none.
"""
