"""Text -> statements: what a text asks for, without looking anything up, running anything or starting
Spark."""
