"""Evaluation without Spark: constants, conditions, key ranges, assignments and simple queries."""
