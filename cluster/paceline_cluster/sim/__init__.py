"""Whole clusters in one process, on virtual time, from a seed (see README.md)."""
