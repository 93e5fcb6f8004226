"""Topics by name, their administration, and what of the metadata listeners tell."""
