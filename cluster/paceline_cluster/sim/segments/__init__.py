"""The segment protocol in simulated clusters: clients, and the judge of what they were told."""
