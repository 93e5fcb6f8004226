"""Event streams of topics of kind event-sourcing (DESIGN 8)."""
