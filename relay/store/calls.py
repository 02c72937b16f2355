"""How a script is called: what every call carries, and the keys of the mailboxes it touches."""

from collections.abc import Iterable
from typing import Any

from relay.settings import Settings
from relay.store.batches import script_packet
from relay.store.clock import Clock
from relay.store.keys import Keys
from relay.store.scripts import Script

ENDED_BUCKETS = 2  # a bucket of the dedup window lives this many windows


class Calls:
    """Makes the wire bytes of script calls for one instance."""

    def __init__(self, keys: Keys, clock: Clock, settings: Settings, instance: str) -> None:
        self.keys = keys
        self.clock = clock
        self.settings = settings
        self.instance = instance
        self.publish = "PUBLISH"

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
        self, one: Script, shard: int, values: Iterable[Any], *, more_keys: int = 0, more_chunk: bytes = b""
    ) -> bytes:
        now_ms = self.clock.now_ms()
        call = [*self.opening(shard, now_ms), *values]
        return script_packet(one, self.keys.shard_chunk(shard, now_ms), more_keys, more_chunk, call)

    def for_mailboxes(
        self, one: Script, shard: int, before: Iterable[Any], mailboxes: list[list[Any]], *, with_dead: bool = False
    ) -> bytes:
        """A call whose last value is the list of mailboxes, each beginning with address and priorities."""
        chunks = []
        count = 0
        for mailbox in mailboxes:
            address, priorities = mailbox[0], mailbox[1]
            chunks.append(self.keys.box_chunk(address, priorities))
            count += len(priorities)
            if with_dead:
                chunks.append(self.keys.dead_chunk(address))
                count += 1
        return self.packet(one, shard, [*before, mailboxes], more_keys=count, more_chunk=b"".join(chunks))
