"""Proof of archive, restore and audit: histories drawn from a seed, with crashes, through Spark."""
