"""State machines over internal topics: replicated, recoverable, led by whoever leads the log."""
