"""A delivery: one message that a session or lease holds."""

from msgspec import Struct


class Taken(Struct, gc=False, eq=False):
    """One delivery. Head and opts, which shard.lua describes, are kept for its settlement."""

    entry: str
    attempt: int
    head: str
    opts: str
    body: bytes
    taken_at_ms: int = 0  # when its holder got it
    was_stored: bool = False  # whether it had been accepted before its session began
    is_acked: bool = False  # its holder has said so: it is believed once, for two acks may share a call


def came_at_ms(entry: str) -> int:
    """When an entry was stored, which its handle begins with."""
    return int(entry.partition("-")[0])
