"""Limits: caps and rates of single agents."""

from relay.store import readable
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script


class Limits:
    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys

    async def set_caps(self, address: str, max_messages: int | None, max_bytes: int | None, by: str = "") -> None:
        """Caps of its own for one mailbox; without either, the relay's count again."""
        settings = self._encoder.settings
        messages = settings.mailbox_max_messages if max_messages is None else max_messages
        size = settings.mailbox_max_bytes if max_bytes is None else max_bytes
        caps = "" if max_messages is None and max_bytes is None else f"{messages}\t{size}"
        await self._limit(address, by, caps, False)

    async def set_rate(self, address: str, per_s: int | None, burst: int | None, by: str = "") -> None:
        """A rate of its own for one sender; without either, the relay's counts again."""
        settings = self._encoder.settings
        own_per_s = settings.rate_per_s if per_s is None else per_s
        own_burst = settings.rate_burst if burst is None else burst
        rate = "" if per_s is None and burst is None else f"{own_per_s}\t{own_burst}"
        await self._limit(address, by, False, rate)

    async def _limit(self, address: str, by: str, caps: str | bool, rate: str | bool) -> None:
        shard = self._keys.shard(address)
        packet = self._encoder.packet(
            script("limit"), shard, [address, by, caps, rate], keys=[self._keys.limits(shard)]
        )
        await self._pipeline.reply(packet, needs_replicas=True)

    async def rate_of(self, address: str) -> tuple[int, int] | None:
        """Messages per second and burst of a sender that has a rate of its own."""
        value = await self._pipeline.command("HGET", self._keys.limits(self._keys.shard(address)), address)
        if not value:
            return None
        per_s, _, burst = value.partition(b"\t")
        return readable.whole(per_s), readable.whole(burst)
