"""The controller's gRPC surface of the modern segment dialect."""
