"""``format("strandline")``: tables and changefeeds for Spark, with its Python data source API.

Spark runs this code in its own processes: planning and commits on the driver's machine, reads and writes on
executors. So nothing here has the connection of the calling process. Processes on the driver's machine open
the warehouse named by the options; executors open none.
"""
