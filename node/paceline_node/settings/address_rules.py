"""Who clients are by their address, as settings say it: ``10.0.0.0/8=sensors``."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from paceline.values import dataclass

_NAME_CHARACTERS = 255


@dataclass(frozen=True, slots=True)
class AddressRule:
    """Who comes from ``network`` is ``name``."""

    network: IPv4Network | IPv6Network
    name: str

    @classmethod
    def parse(cls, text: str) -> AddressRule:
        """``ADDRESS=NAME`` or ``NETWORK=NAME``. Raises ValueError."""
        place, _, name = (part.strip() for part in text.partition("="))
        try:
            network = ip_network(place)
        except ValueError as error:
            raise ValueError(
                f"{text!r}: expected ADDRESS=NAME or NETWORK=NAME, as 10.0.0.0/8=sensors: {error}"
            ) from None
        # Nobody is taken for a node, or for one who proved nothing (security/DESIGN 2).
        folded = name.casefold()
        is_ours = folded == "anonymous" or folded.startswith("node:")
        if is_ours or not (name.isprintable() and 0 < len(name) <= _NAME_CHARACTERS):
            raise ValueError(
                f"{text!r}: expected behind = the name of a principal: 1 to {_NAME_CHARACTERS} "
                "printable characters, not anonymous, and not node: in front"
            )
        return cls(network, name)

    def __str__(self) -> str:
        return f"{self.network}={self.name}"


def name_by_address(rules: Sequence[AddressRule], host: str) -> str:
    """Of the first rule that fits; empty where none does."""
    try:
        address = ip_address(host)
    except ValueError:
        return ""
    return next((rule.name for rule in rules if address in rule.network), "")
