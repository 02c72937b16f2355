"""The reaper: ends sessions whose instance has died."""

import asyncio
import logging

from relay.store.store import Store

log = logging.getLogger(__name__)

PAGE = 1_000  # sessions of a shard that one command asks for


class Reaper:
    """Looks at every session when an instance has died, and else at some each round.

    Those are for sessions that came while their instance was being forgotten.
    """

    def __init__(self) -> None:
        self._sessions: dict[int, str] = {}  # shard -> the cursor among its sessions

    async def reap_shard(self, store: Store, shard: int, now_ms: int) -> int:
        """Returns how many sessions were ended."""
        dead = await _dead(store, shard, now_ms)
        cursor = "0" if dead else self._sessions.get(shard, "0")
        cursor, ended = await end_some(store, shard, now_ms, cursor)
        while dead and cursor != "0":
            cursor, more = await end_some(store, shard, now_ms, cursor)
            ended += more
        self._sessions[shard] = cursor
        for instance in dead & await _dead(store, shard, now_ms):
            await store.presence.forget_instance(shard, instance)
        return ended


async def _dead(store: Store, shard: int, now_ms: int) -> set[str]:
    alive_until = await store.presence.instances(shard)
    return {instance for instance, until_ms in alive_until.items() if until_ms < now_ms}


async def end_some(store: Store, shard: int, now_ms: int, cursor: str) -> tuple[str, int]:
    """Releases what the sessions of dead instances held; no attempt is counted. Returns the next cursor, how many."""
    following, registered = await store.presence.sessions(shard, cursor, PAGE)
    alive_until = await store.presence.instances(
        shard
    )  # read last: whoever is registered has said before that it lives
    gone = [
        (address, session)
        for address, sessions in registered.items()
        for session in sessions
        if alive_until.get(session.partition(".")[0], 0) < now_ms
    ]
    ended = await asyncio.gather(*(store.presence.leave(*pair, "instance gone") for pair in gone))
    for (address, session), has_ended in zip(gone, ended, strict=True):
        if has_ended:
            log.info("session_reaped", extra={"agent": address, "session": session})
    return following, sum(ended)
