"""Which of a Cluster's slots a key is in."""

from redis.crc import key_slot

SLOTS = 16_384


def slot_of(key: str | bytes) -> int:
    """The slot of a key, or of a channel."""
    return key_slot(key.encode() if isinstance(key, str) else key, SLOTS)
