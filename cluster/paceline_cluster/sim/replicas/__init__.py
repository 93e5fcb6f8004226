"""The replication cores alone, without trio: replicas driven by one heap of events (README.md)."""
