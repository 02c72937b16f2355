"""The reaper: ends sessions whose instance has died."""

import logging

from relay.store.store import Store

log = logging.getLogger(__name__)


async def reap_shard(store: Store, shard: int, now_ms: int) -> int:
    """Returns how many sessions were ended."""
    if not await store.roster.is_counted(shard):
        await store.roster.build(shard)
    return await end_dead_sessions(store, shard, now_ms)


async def end_dead_sessions(store: Store, shard: int, now_ms: int) -> int:
    """Releases what the sessions of a dead instance held; no attempt is counted."""
    registered = await store.presence.sessions(shard)
    alive_until = await store.presence.instances(
        shard
    )  # read last: whoever is registered has said before that it lives
    dead = {instance for instance, until_ms in alive_until.items() if until_ms < now_ms}
    ended = 0
    for address, sessions in registered.items():
        for session in sessions:
            instance = session.partition(".")[0]
            if instance in dead or instance not in alive_until:
                await store.presence.leave(address, session, "instance gone")
                log.info("session_reaped", extra={"agent": address, "session": session})
                ended += 1
    for instance in dead:
        await store.presence.forget_instance(shard, instance)
    await store.presence.forget_windows(shard)
    return ended
