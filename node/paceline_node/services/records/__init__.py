"""Produce, fetch, offsets, deletion of old records: one way for all protocols (DESIGN 2)."""
