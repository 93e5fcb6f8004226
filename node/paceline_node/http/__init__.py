"""The http port: health, metrics, and the native protocol over WebSocket."""
