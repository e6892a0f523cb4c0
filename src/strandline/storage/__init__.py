"""Chains of segments: how rows lie in files, and how a state is read from them, in the process (Arrow) and on
Spark."""
