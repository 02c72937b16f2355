"""The reaper: lets go of sessions whose instance has died, and of mailboxes that nobody has used for long."""

import logging

from relay.store.store import Store

log = logging.getLogger(__name__)

IDLE_MS = 24 * 3_600_000  # an empty mailbox, unused for this long, gives back its memory
RATES_IDLE_MS = 3_600_000  # a sender's bucket is long full by then
PAGE = 500
AT_ONCE = 20


async def reap_shard(store: Store, shard: int, now_ms: int) -> int:
    """Returns how many sessions were ended and mailboxes removed."""
    ended = await end_dead_sessions(store, shard, now_ms)
    await store.duties.forget_rates(shard, now_ms - RATES_IDLE_MS)
    return ended + await _reap_idle(store, shard, now_ms)


async def end_dead_sessions(store: Store, shard: int, now_ms: int) -> int:
    """What sessions of a dead instance held is released, uncounted."""
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
    return ended


async def _reap_idle(store: Store, shard: int, now_ms: int) -> int:
    cursor, reaped = "0", 0
    receipts_before_ms = now_ms - store.settings.message_ttl_s * 1_000
    while True:
        cursor, idle = await store.duties.idle_agents(shard, now_ms - IDLE_MS, cursor, PAGE)
        for start in range(0, len(idle), AT_ONCE):
            words = await store.duties.reap(shard, idle[start : start + AT_ONCE], receipts_before_ms)
            reaped += words.count("reaped")
        if cursor == "0":
            return reaped
