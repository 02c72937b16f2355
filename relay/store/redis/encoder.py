"""Encodes script calls: what every call carries, and the keys of its mailboxes."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from relay.settings import Settings
from relay.store.clock import Clock
from relay.store.keys import SHARD_KEYS, Keys
from relay.store.redis.resp import bulk_string, bulk_strings, encode_command
from relay.store.redis.scripts import Script

Number = tuple[int, str | int]  # of a call that is carried out once: exchange and part; see fence.lua

ENDED_BUCKETS = 2  # a bucket of the dedup window lives this many windows
MAX_MAILBOXES = 200_000  # whose keys are kept encoded

_pack = msgspec.msgpack.Encoder().encode


class ScriptEncoder:
    """Makes the wire bytes of script calls for one instance."""

    def __init__(
        self, keys: Keys, clock: Clock, settings: Settings, instance: str, publish_word: str = "PUBLISH"
    ) -> None:
        self.keys = keys
        self.clock = clock
        self.settings = settings
        self.instance = instance
        self.publish = publish_word
        self._mailboxes: dict[tuple[str, str], bytes] = {}  # address, priorities -> its keys
        self._shards: dict[int, tuple[tuple[int, int], bytes]] = {}  # shard -> its buckets, its keys

    def opening(self, shard: int, now_ms: int) -> list[Any]:
        """The values that every call begins with; see open() in shard.lua."""
        return [
            now_ms,
            self.instance,
            self.settings.events_max_entries,
            ENDED_BUCKETS * self.keys.dedup_window_ms,
            self.publish,
            self.keys.wake_prefix(shard),
        ]

    def packet(
        self,
        script: Script,
        shard: int,
        values: Iterable[Any],
        *,
        keys: Sequence[str] = (),
        number: Number | None = None,
    ) -> bytes:
        """A call with further keys behind those of the shard."""
        return self._encode(script, shard, values, len(keys), bulk_strings(keys), number)

    def for_mailboxes(
        self,
        script: Script,
        shard: int,
        before: Iterable[Any],
        mailboxes: list[list[Any]],
        *,
        with_dead: bool = False,
        keys: Sequence[str] = (),
        number: Number | None = None,
    ) -> bytes:
        """A call whose last value is the list of mailboxes, each beginning with address and priorities; their keys come
        behind `keys`."""
        encoded = [bulk_strings(keys)]
        count = len(keys)
        for mailbox in mailboxes:
            address, priorities = mailbox[0], mailbox[1]
            encoded.append(self._mailbox_keys(address, priorities))
            count += len(priorities)
            if with_dead:
                encoded.append(bulk_string(self.keys.dead(address).encode()))
                count += 1
        return self._encode(script, shard, [*before, mailboxes], count, b"".join(encoded), number)

    def _encode(
        self, script: Script, shard: int, values: Iterable[Any], count: int, encoded: bytes, number: Number | None
    ) -> bytes:
        """EVALSHA: the shard's keys, `count` further ones that are encoded, and the values as one msgpack argument."""
        now_ms = self.clock.now_ms()
        call = [*self.opening(shard, now_ms), *(number or ()), *values]
        if number is not None:
            count, encoded = count + 1, bulk_string(self.keys.calls(shard).encode()) + encoded
        return b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n%b%b%b%b" % (
            4 + SHARD_KEYS + count,
            script.sha,
            bulk_string(b"%d" % (SHARD_KEYS + count)),
            self._shard_keys(shard, now_ms),
            encoded,
            bulk_string(_pack(call)),
        )

    def _shard_keys(self, shard: int, now_ms: int) -> bytes:
        """Kept until a bucket changes."""
        buckets = (now_ms // self.keys.dedup_window_ms, now_ms // self.keys.ttl_ms)
        kept = self._shards.get(shard)
        if kept and kept[0] == buckets:
            return kept[1]
        encoded = bulk_strings(self.keys.shard_keys(shard, now_ms))
        self._shards[shard] = (buckets, encoded)
        return encoded

    def _mailbox_keys(self, address: str, priorities: str) -> bytes:
        encoded = self._mailboxes.get((address, priorities))
        if encoded is None:
            if len(self._mailboxes) > MAX_MAILBOXES:
                self._mailboxes.clear()
            encoded = bulk_strings(self.keys.boxes(address, priorities))
            self._mailboxes[address, priorities] = encoded
        return encoded


def keyed_packet(script: Script, key: str, *values: str | bytes | int) -> bytes:
    """A call of a script with one key and plain values."""
    return encode_command("EVALSHA", script.sha, 1, key, *values)
