"""The witness: remembers what the store has promised, and notices when the store does not have it any more."""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from relay.store.redis.encoder import ScriptEncoder, keyed_packet
from relay.store.redis.resp import encode_command
from relay.store.redis.scripts import script
from relay.store.redis.servers.link import Ask

log = logging.getLogger(__name__)

MOST_KNOWN = 512  # entries of a shard's log that are remembered, to say how many of them are lost


class Regress(Struct, frozen=True):
    """How far a shard has gone back in time, as far as instances know that."""

    times: int  # how often the shard has, with this one
    at_ms: int  # when it was noticed
    last_kept: str  # the newest entry of its event log that is still there; 0-0 if none is
    first_lost: str
    newest_known: str
    lost_by: dict[str, int]  # instance -> how many are lost of the entries that it remembers

    @property
    def entries(self) -> int:
        return sum(self.lost_by.values())

    def as_fields(self) -> dict[str, Any]:
        names = ("at_ms", "last_kept", "first_lost", "newest_known", "entries", "seconds")
        return {name: getattr(self, name) for name in names}

    @property
    def seconds(self) -> float:
        """How much time is missing."""
        from_id = self.first_lost if self.last_kept == "0-0" else self.last_kept
        return (_ms(self.newest_known) - _ms(from_id)) / 1_000


class Witness:
    """Guarantees: what was promised on an earlier connection, or by the master that had the slot before, is looked for
    before anything else is asked. A store that lacks it says so in its event log first."""

    def __init__(self, encoder: ScriptEncoder) -> None:
        self._encoder = encoder
        self._known = [deque[bytes](maxlen=MOST_KNOWN) for _ in range(encoder.keys.shards)]
        self._times = [0] * encoder.keys.shards  # how often each has gone back
        self.found: dict[int, Regress] = {}  # by shard: what nobody has been told of yet
        self.on_regress: list[Callable[[], None]] = []

    def promised(self, shard: int, entry: bytes) -> None:
        """A call that was promised to last has this entry in the event log, or none."""
        if entry:
            self._known[shard].append(entry)

    def learn(self, regresses: dict[int, Regress]) -> None:
        """What is said in the store, where it may be undone."""
        for shard, regress in regresses.items():
            self._times[shard] = max(self._times[shard], regress.times)

    def forget(self, told: dict[int, Regress]) -> None:
        """These were said in the store; what was found meanwhile was not."""
        self.found = {shard: found for shard, found in self.found.items() if told.get(shard) is not found}

    def forget_all(self) -> None:
        """The store was emptied: nothing that was promised before is looked for."""
        for known in self._known:
            known.clear()

    async def compare(self, shards: Iterable[int], ask: Ask) -> bool:
        """Looks whether a master has what is known of its shards. False if it has gone back in time.

        Raises OSError or RedisError."""
        known = [shard for shard in shards if self._known[shard]]
        replies = await ask([self._is_kept(shard) for shard in known]) if known else []
        lost = [shard for shard, reply in zip(known, replies, strict=True) if reply == 0]
        if lost:
            replies = await ask([self._regress(shard) for shard in lost])
            self._note(dict(zip(lost, replies, strict=True)))
        return not lost

    def _is_kept(self, shard: int) -> bytes:
        return keyed_packet(script("kept"), self._encoder.keys.events(shard), self._known[shard][-1])

    def _regress(self, shard: int) -> bytes:
        keys, now_ms = self._encoder.keys, self._encoder.clock.now_ms()
        names = (keys.events(shard), *keys.seqs(shard, now_ms), keys.sums(shard))
        before = (now_ms, self._encoder.instance, self._encoder.settings.events_max_entries, self._times[shard])
        return encode_command("EVALSHA", script("regress").sha, len(names), *names, *before, *self._known[shard])

    def _note(self, replies: dict[int, object]) -> None:
        for shard, reply in replies.items():
            if not isinstance(reply, list):  # its slot has moved on, where it is compared again
                continue
            times, last_kept, first_lost, count = reply
            ids = (last_kept.decode(), first_lost.decode(), self._known[shard][-1].decode())
            self._known[shard].clear()
            lost_by = {self._encoder.instance: count}
            self.found[shard] = Regress(times, self._encoder.clock.now_ms(), *ids, lost_by)
        self.learn(self.found)
        for act in self.on_regress:
            act()


def _ms(entry: str) -> int:
    return int(entry.partition("-")[0])
