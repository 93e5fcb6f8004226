"""Proof of the Spark sink's exactly-once: queries, workers and nodes killed at chosen points."""
