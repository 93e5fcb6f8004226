"""The V1 line protocol: lines, requests, replies (spec v1; seeds/v1.txt)."""
