"""Expiry: mailboxes whose oldest messages have outlived the TTL."""

from relay.store import readable
from relay.store.keys import ALL_LANES
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script
from relay.store.replies.receipts import Receipts

EXPIRE_AT_ONCE = 200  # entries of a lane in one call, if they are small: a few milliseconds of Redis


class Expiry:
    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder, receipts: Receipts) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys
        self._receipts = receipts

    async def due_mailboxes(self, shard: int, before_ms: int, limit: int) -> list[str]:
        """The mailboxes whose oldest entry was accepted before then."""
        key = self._keys.waiting(shard)
        reply = await self._pipeline.command("ZRANGE", key, "-inf", before_ms, "BYSCORE", "LIMIT", 0, limit)
        return readable.names(key, reply)

    async def expire(self, shard: int, addresses: list[str]) -> dict[str, tuple[int, bool]]:
        """Ends what has expired at the front of these mailboxes: how many of each, and whether more may be due."""
        packet = self._encoder.for_mailboxes(
            script("expire"), shard, [EXPIRE_AT_ONCE], [[address, ALL_LANES] for address in addresses]
        )
        outbox_entry, receipts, ended = await self._pipeline.reply(packet)
        self._receipts.forward(shard, outbox_entry, receipts)
        return {address: (count, more == 1) for address, (count, more) in zip(addresses, ended, strict=True)}
