"""Commands in wire format: whole ones, and encoded arguments that are kept and joined."""

from collections.abc import Iterable

from hiredis import pack_command


def encode_command(*parts: str | bytes | int) -> bytes:
    """A whole command."""
    packet: bytes = pack_command(parts)  # type: ignore[arg-type]
    return packet


def bulk_string(data: bytes) -> bytes:
    """One argument of a command."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def bulk_strings(names: Iterable[str]) -> bytes:
    return b"".join([bulk_string(name.encode()) for name in names])


_KEY_AT = {b"EVALSHA": 3, b"MEMORY": 2}  # where else than behind its name a command has its first key
_KEYLESS = frozenset((b"PING", b"TIME", b"INFO", b"CONFIG"))


def first_key(packet: bytes) -> bytes | None:
    """The first key of a command, which tells where all its keys are; None if it has none."""
    start = packet.index(b"\r\n") + 2
    name, start = _bulk_string_at(packet, start)
    if name in _KEYLESS:
        return None
    for _ in range(_KEY_AT.get(name, 1)):
        key, start = _bulk_string_at(packet, start)
    return key


def _bulk_string_at(packet: bytes, start: int) -> tuple[bytes, int]:
    """The argument that begins there, and where the next one does."""
    head = packet.index(b"\r\n", start)
    end = head + 2 + int(packet[start + 1 : head])
    return packet[head + 2 : end], end + 2
