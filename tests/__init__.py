"""Tests. ``python -m tests.simulation`` can be run by itself."""
