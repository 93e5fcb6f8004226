"""The native client protocol: Paceline's own requests, over TCP and WebSocket alike."""
