"""The SQL parser: text to statements, without any lookup, execution or Spark."""
