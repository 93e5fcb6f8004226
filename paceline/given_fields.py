"""What is said of a client's settings of which one is given without the other."""

from __future__ import annotations

from collections.abc import Mapping


def lacking(what: str, missing: str, given: str, kind: str, variables: Mapping[str, str]) -> str:
    """That ``missing`` belongs beside ``given``, with the three places where it is set; ``kind``
    is the class that takes it in programs."""
    return (
        f"{what}: {missing} is missing, and belongs beside {given}: set it as {variables[missing]} "
        f"in the environment, behind the ? of an address as {missing}=..., or in {kind}"
    )
