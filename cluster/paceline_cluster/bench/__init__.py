"""Measures a cluster of real processes; ``scripts/bench`` runs it. Never a test (DESIGN 4)."""
