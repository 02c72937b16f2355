"""Events: keeps the event logs of all shards within their shared memory limit."""

import logging

from relay.store.store import Store

log = logging.getLogger(__name__)

MEMORY_SHARE = 0.1  # of the server's maxmemory, if that is less than the setting
DOWN_TO = 0.9  # of the limit: cutting a little more than needed makes it rare


async def trim_logs(store: Store, _shard: int, _now_ms: int) -> int:
    """Cuts the longest logs to one level when all together are over the limit. Returns how many entries went.

    By the average entry of each log: where newer entries are larger, the next rounds cut the rest.
    """
    await store.memory.look()
    limit = limit_bytes(store.settings.events_max_bytes, store.memory.max_bytes)
    logs = await store.trimming.logs()
    if sum(shard_log.bytes for shard_log in logs) <= limit:
        return 0
    level = water_level([shard_log.bytes for shard_log in logs], limit * DOWN_TO)
    cut = 0
    for shard, shard_log in enumerate(logs):
        if shard_log.bytes > level:
            cut += await store.trimming.cut(shard, int(shard_log.entries * level / shard_log.bytes))
    log.info("events_cut", extra={"entries": cut, "limit_bytes": limit})
    return cut


def limit_bytes(setting: int, max_memory: int) -> int:
    """The limit of all event logs in bytes; `max_memory` is 0 if the server has no limit."""
    return min(setting, int(max_memory * MEMORY_SHARE)) if max_memory else setting


def water_level(sizes: list[float], limit: float) -> float:
    """The size to which the larger ones are cut, so that all are within the limit and the small ones stay whole."""
    left = limit
    ascending = sorted(sizes)
    for n, size in enumerate(ascending):
        share = left / (len(ascending) - n)
        if size > share:
            return share
        left -= size
    return ascending[-1] if ascending else 0.0
