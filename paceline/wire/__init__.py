"""Wire formats as sans-I/O codecs: bytes in, messages out; no sockets, no clocks."""
