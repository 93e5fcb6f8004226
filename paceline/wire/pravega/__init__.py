"""The controller's gRPC surface of the Pravega segment dialect."""
