"""Consumer groups: finding, opening and commanding them where this node coordinates."""
