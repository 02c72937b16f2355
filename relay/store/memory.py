"""Memory: how full the server is. The relay stops adding before the server refuses everything."""

from relay.errors import StoreUnavailable
from relay.store.redis.pipeline import CommandPipeline

RETRY_AFTER_MS = 1_000  # until then the server has been looked at again
OVERHEAD_BYTES = 500  # of one message beside its payload, roughly
ROUNDED_UP = 4  # allocators give up to this part more than they are asked for


class Memory:
    """The memory that the server last reported, plus what this instance has sent since.

    On a Cluster it is that of the fullest master.
    """

    def __init__(self, pipeline: CommandPipeline, max_share: float) -> None:
        self._pipeline = pipeline
        self._max_share = max_share
        self._added = 0.0  # since the last look
        self._used_then = 0
        self._masters = 1
        self.max_bytes = 0  # 0: as much as the machine has

    async def look(self) -> None:
        """Asks the server. Raises StoreUnavailable."""
        added = self._added
        seen = await self._pipeline.info_of_each("memory")
        self._masters = len(seen)
        fills = [(int(info["used_memory"]), int(info.get("maxmemory", 0))) for info in seen.values()]
        self._used_then, self.max_bytes = max(fills, key=lambda fill: fill[0] / fill[1] if fill[1] else 0.0)
        self._added -= added

    def add(self, messages: int, payload_bytes: int) -> None:
        """Adds bytes that go to the server now, or in equal parts to the masters of a Cluster."""
        added = payload_bytes + payload_bytes // ROUNDED_UP + messages * OVERHEAD_BYTES
        self._added += added / self._masters

    @property
    def used_bytes(self) -> int:
        return self._used_then + round(self._added)

    @property
    def share(self) -> float:
        return self.used_bytes / self.max_bytes if self.max_bytes else 0.0

    @property
    def is_short(self) -> bool:
        """Whether nothing may be added now, so that there is room to take, ack and sweep."""
        return 0 < self.max_bytes * self._max_share <= self.used_bytes

    def require(self) -> None:
        """Raises StoreUnavailable when nothing may be added."""
        if self.is_short:
            raise self.shortage()

    def shortage(self) -> StoreUnavailable:
        return StoreUnavailable(
            "the store is nearly full: it takes nothing new until some of it is acked, expired or trimmed",
            retry_after_ms=RETRY_AFTER_MS,
        )
