"""The controller's gRPC surface of the modern segment dialect (spec segment 12.5)."""
