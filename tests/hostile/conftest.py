"""Hostile clients meet the same relays as everybody else."""

from tests.system.conftest import common_relay, relay, room

__all__ = ["common_relay", "relay", "room"]
