"""Topics: the channel of a tenant on which everything is published."""

from relay.store.keys import Keys
from relay.store.redis.pipeline import CommandPipeline


class TopicChannels:
    def __init__(self, pipeline: CommandPipeline, keys: Keys) -> None:
        self._pipeline = pipeline
        self._keys = keys

    async def publish(self, tenant: str, data: bytes) -> None:
        """To every instance that follows the tenant now. Raises StoreUnavailable."""
        await self._pipeline.command(self._pipeline.publish_word, self._keys.topics(tenant), data)
