"""Overdue: single entries with their own time, such as a hold, a delay or a short TTL."""

from relay.protocol.entry import parse_entry
from relay.store.keys import ALL_LANES
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script
from relay.store.replies.receipts import Receipts


class Overdue:
    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder, receipts: Receipts) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys
        self._receipts = receipts

    async def due_entries(self, shard: int, now_ms: int, limit: int) -> list[str]:
        """The members of `due` whose time has come."""
        reply = await self._pipeline.command(
            "ZRANGE", self._keys.due(shard), "-inf", now_ms, "BYSCORE", "LIMIT", 0, limit
        )
        return [member.decode() for member in reply]

    async def carry_out(self, shard: int, members: list[str]) -> list[str]:
        """Does to each entry what was due; the words are overdue.lua's. Safe to repeat, and in several places."""
        packet = self._encoder.for_mailboxes(
            script("overdue"),
            shard,
            [self._encoder.settings.dead_max_messages],
            [[address, ALL_LANES, entries] for address, entries in _by_mailbox(members).items()],
            with_dead=True,
        )
        outbox_entry, receipts, became = await self._pipeline.reply(packet)
        self._receipts.forward(shard, outbox_entry, receipts)
        return [word.decode() for word in became]


def _by_mailbox(members: list[str]) -> dict[str, list[str | int]]:
    """The arguments of overdue.lua for each mailbox: kind, lane index, stream id, kind, …"""
    mailboxes: dict[str, list[str | int]] = {}
    for member in members:
        kind, address, entry = member.split("\t")
        parsed = parse_entry(entry)
        if parsed:
            stream_id, priority = parsed
            mailboxes.setdefault(address, []).extend((kind, ALL_LANES.index(str(priority)) + 1, stream_id))
    return mailboxes
