"""Composition: which parts a broker is made of, in which order they start and stop."""
