"""The Raft core alone, without trio: members driven by one heap of events (README.md)."""
