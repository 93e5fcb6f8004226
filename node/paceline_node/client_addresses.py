"""Addresses that connections come from: in the one form that they are compared in, and whose."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def host_of(address: str) -> str:
    """An address in one form: without brackets and zone, and IPv4 as such where it came in by a
    socket of IPv6. What is no address stays as it is."""
    try:
        found = ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found)


def source_of(address: str) -> str:
    """Whose a connection is: the client's address, or the first half of it where anybody has as
    many addresses as there are (IPv6)."""
    host = host_of(address)
    if ":" not in host or (found := IPv6Address(host)).is_loopback:
        return host
    return found.exploded[:19]
