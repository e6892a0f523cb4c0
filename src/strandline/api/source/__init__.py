"""``format("strandline")``: tables and changefeeds for Spark, with its Python data source API.

Spark runs this code in its own processes: planning and commits on the driver's machine, reads and writes on
executors. So this code cannot use the connection of the calling process. Processes on the driver's machine
open the warehouse that the options name; executors open no warehouse.
"""
