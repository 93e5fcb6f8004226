"""Clients of other brokers' protocols, on the codecs of those protocols, in the simulation."""
