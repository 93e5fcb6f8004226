"""Transactions: commands, writing in one, and how each one ends."""
