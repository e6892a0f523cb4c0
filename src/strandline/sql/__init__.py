"""The SQL parser. It turns text into statements, without catalog lookups, execution or Spark."""
