"""The V1 line protocol: lines, requests, replies."""
