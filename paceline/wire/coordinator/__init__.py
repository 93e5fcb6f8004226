"""The consumer coordinator protocol of the 2012 design: the coordinator drives the consumer."""
