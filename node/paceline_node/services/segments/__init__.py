"""Segments, the streams that are made of them, and the tables of Pravega (DESIGN 7)."""
