"""A node's settings: one frozen tree, read from defaults, file, environment and flags."""

from paceline_node.settings.addresses import (
    BootstrapPeer,
    ClientAuth,
    Listener,
    ListenerKind,
    Login,
)
from paceline_node.settings.cursus import NonUtf8
from paceline_node.settings.loader import InvalidSettings, load
from paceline_node.settings.printing import print_config
from paceline_node.settings.reloading import LiveSettings
from paceline_node.settings.tree import Settings, SimulatedReplicas, SliceClock, Timing

__all__ = [
    "BootstrapPeer",
    "ClientAuth",
    "InvalidSettings",
    "Listener",
    "ListenerKind",
    "LiveSettings",
    "Login",
    "NonUtf8",
    "Settings",
    "SimulatedReplicas",
    "SliceClock",
    "Timing",
    "load",
    "print_config",
]
