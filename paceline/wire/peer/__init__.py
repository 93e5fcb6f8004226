"""Messages between nodes, carried by the frames of ``paceline.wire.frame``."""
