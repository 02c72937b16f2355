"""The steps that workers take in the store, a shard at a time."""

from dataclasses import dataclass

from relay.protocol import parse_entry
from relay.store.batches import Line
from relay.store.calls import Calls
from relay.store.keys import ALL_LANES
from relay.store.receipts import Receipts
from relay.store.scripts import script

FAILING_FOR_MS = 60_000  # a worker that has not complained for this long is gone or well again
EXPIRE_AT_ONCE = 200  # entries of a lane in one call: a few milliseconds of Redis


@dataclass(frozen=True, slots=True)
class Depth:
    """What waits in a shard."""

    mailboxes: int
    messages: int
    oldest_ms: int | None
    expired: int  # since the store was made
    dead: int


class Duties:
    """Each step is safe to repeat, and to run in several places at once."""

    def __init__(self, line: Line, calls: Calls, receipts: Receipts) -> None:
        self._line = line
        self._calls = calls
        self._keys = calls.keys
        self._receipts = receipts

    async def due_mailboxes(self, shard: int, before_ms: int, limit: int) -> list[str]:
        """The mailboxes whose oldest entry was accepted before then."""
        reply = await self._line.command(
            "ZRANGE", self._keys.waiting(shard), "-inf", before_ms, "BYSCORE", "LIMIT", 0, limit
        )
        return [address.decode() for address in reply]

    async def expire(self, shard: int, addresses: list[str]) -> dict[str, tuple[int, bool]]:
        """Ends what has expired at the front of these mailboxes: how many of each, and whether more may be due."""
        packet = self._calls.for_mailboxes(
            script("expire"), shard, [EXPIRE_AT_ONCE], [[address, ALL_LANES] for address in addresses]
        )
        outbox_entry, receipts, ended = await self._line.reply(packet)
        self._receipts.forward(shard, outbox_entry, receipts)
        return {address: (count, more == 1) for address, (count, more) in zip(addresses, ended, strict=True)}

    async def due_entries(self, shard: int, now_ms: int, limit: int) -> list[str]:
        """The members of `due` whose time has come."""
        reply = await self._line.command("ZRANGE", self._keys.due(shard), "-inf", now_ms, "BYSCORE", "LIMIT", 0, limit)
        return [member.decode() for member in reply]

    async def overdue(self, shard: int, members: list[str]) -> list[str]:
        """Does to each entry what was due; the words are overdue.lua's."""
        mailboxes: dict[str, list[str | int]] = {}
        for member in members:
            kind, address, entry = member.split("\t")
            parsed = parse_entry(entry)
            if parsed:
                stream_id, priority = parsed
                lane = ALL_LANES.index(str(priority)) + 1
                mailboxes.setdefault(address, []).extend((kind, lane, stream_id))
        packet = self._calls.for_mailboxes(
            script("overdue"),
            shard,
            [self._calls.settings.dead_max_messages],
            [[address, ALL_LANES, flat] for address, flat in mailboxes.items()],
            with_dead=True,
        )
        outbox_entry, receipts, became = await self._line.reply(packet)
        self._receipts.forward(shard, outbox_entry, receipts)
        return [word.decode() for word in became]

    async def left_in_outbox(
        self, shard: int, after: str, older_than_ms: int, limit: int
    ) -> list[tuple[bytes, list[bytes]]]:
        """Outbox entries from there on that nobody has brought on since then."""
        reply = await self._line.command(
            "XRANGE", self._keys.outbox(shard), after, f"({older_than_ms}-0", "COUNT", limit
        )
        return [(entry, fields) for entry, fields in reply]

    async def trim_events(self, shard: int, older_than_ms: int, unarchived_older_than_ms: int) -> int:
        """Removes events older than that; where an archive is kept, of those that it has not read only the ones older
        than the second time. Returns how many entries went."""
        oldest = f"{older_than_ms}-0"
        archived: bytes | None = await self._line.command("GET", self._keys.archived(shard))
        if archived is not None:
            oldest = min(oldest, max(archived.decode(), f"{unarchived_older_than_ms}-0", key=_id_order), key=_id_order)
        count: int = await self._line.command("XTRIM", self._keys.events(shard), "MINID", oldest)
        return count

    async def idle_agents(self, shard: int, before_ms: int, cursor: str, count: int) -> tuple[str, list[str]]:
        """A page of agents that were last seen before then; the cursor is "0" at the end."""
        following, flat = await self._line.command("HSCAN", self._keys.seen(shard), cursor, "COUNT", count)
        idle = [flat[n].decode() for n in range(0, len(flat), 2) if int(flat[n + 1].partition(b"\t")[0]) < before_ms]
        return following.decode(), idle

    async def reap(self, shard: int, addresses: list[str], receipts_before_ms: int) -> list[str]:
        """Removes the streams of mailboxes that are empty and served by nobody; the words are reap.lua's."""
        mailboxes = [[address, ALL_LANES] for address in addresses]
        for address in addresses:
            await self._line.command("XTRIM", self._keys.receipts(address), "MINID", f"{receipts_before_ms}-0")
        reply = await self._line.reply(self._calls.for_mailboxes(script("reap"), shard, [], mailboxes))
        return [word.decode() for word in reply]

    async def report(self, worker: str, error: str) -> None:
        """Says how a worker fares: an empty error when it does its duty."""
        if error:
            await self._line.command("HSET", self._keys.workers, worker, f"{self._calls.clock.now_ms()}\t{error}")
        else:
            await self._line.command("HDEL", self._keys.workers, worker)

    async def failing_workers(self) -> dict[str, str]:
        """The workers that could not do their duty lately, and why."""
        flat = await self._line.command("HGETALL", self._keys.workers)
        since = self._calls.clock.now_ms() - FAILING_FOR_MS
        found = {flat[n].decode(): flat[n + 1].decode().partition("\t") for n in range(0, len(flat), 2)}
        return {worker: error for worker, (at_ms, _, error) in found.items() if int(at_ms) >= since}

    async def lease(self, duty: str, holder: str, lease_ms: int) -> bool:
        """Whether this holder should do a duty now. It only saves work: two holders at once do no harm."""
        key = self._keys.lease(duty)
        if await self._line.command("SET", key, holder, "NX", "PX", lease_ms):
            return True
        if await self._line.command("GET", key) != holder.encode():
            return False
        await self._line.command("PEXPIRE", key, lease_ms)
        return True

    async def forget_rates(self, shard: int, before_ms: int) -> int:
        """Forgets the buckets of senders that have not sent since then: they are full. Returns how many."""
        key = self._keys.rates(shard)
        cursor, count = "0", 0
        while True:
            following, flat = await self._line.command("HSCAN", key, cursor, "COUNT", 500)
            idle = [flat[n] for n in range(0, len(flat), 2) if int(flat[n + 1].partition(b"\t")[2]) < before_ms]
            if idle:
                count += await self._line.command("HDEL", key, *idle)
            cursor = following.decode()
            if cursor == "0":
                return count

    async def depth(self, shard: int) -> Depth:
        """How much waits in a shard."""
        key = self._keys.waiting(shard)
        mailboxes = await self._line.command("ZCARD", key)
        oldest = await self._line.command("ZRANGE", key, 0, 0, "WITHSCORES")
        messages = await self._line.command("HLEN", self._keys.ids(shard))
        expired, dead = await self._line.command("HMGET", self._keys.totals(shard), "expired", "dead")
        oldest_ms = int(float(oldest[1])) if oldest else None
        return Depth(mailboxes, messages, oldest_ms, int(expired or 0), int(dead or 0))


def _id_order(stream_id: str) -> tuple[int, int]:
    milliseconds, _, number = stream_id.partition("-")
    return int(milliseconds), int(number)
