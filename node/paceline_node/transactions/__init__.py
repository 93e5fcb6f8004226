"""The transaction coordinator: who is in a transaction, and how each one ends."""
