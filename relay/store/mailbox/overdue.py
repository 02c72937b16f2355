"""Overdue: single entries with their own time, such as a hold, a delay or a short TTL."""

from relay.protocol.entry import parse_entry
from relay.store import readable
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
        """The members of `due` whose time has come. Those that cannot be read stay, and are not in the way."""
        key, offset = self._keys.due(shard), 0
        while reply := await self._pipeline.command("ZRANGE", key, "-inf", now_ms, "BYSCORE", "LIMIT", offset, limit):
            if found := readable.readable(key, reply, read_due):
                return ["\t".join(member) for member in found]
            offset += limit
        return []

    async def carry_out(self, shard: int, members: list[str]) -> list[str]:
        """Does to each entry what was due; the words are overdue.lua's. Safe to repeat, and in several places."""
        mailboxes = _by_mailbox(members)
        packet = self._encoder.for_mailboxes(
            script("overdue"),
            shard,
            [self._encoder.settings.dead_max_messages],
            [
                [address, ALL_LANES, [part for due in named.values() for part in due]]
                for address, named in mailboxes.items()
            ],
            with_dead=True,
        )
        outbox_entry, receipts, became = await self._pipeline.reply(packet)
        self._receipts.forward(shard, outbox_entry, receipts)
        sent = (member for named in mailboxes.values() for member in named)
        words = {member: word.decode() for member, word in zip(sent, became, strict=True)}
        return [words.get(member, "nothing") for member in members]


def read_due(member: bytes) -> tuple[str, str, str]:
    """Kind, address and handle of a member of `due`. Raises ValueError."""
    kind, address, entry = member.decode().split("\t")
    if parse_entry(entry) is None:
        raise ValueError
    return kind, address, entry


def _by_mailbox(members: list[str]) -> dict[str, dict[str, tuple[str, int, str]]]:
    """What is due in each mailbox, as overdue.lua wants it: member -> kind, lane index, stream id."""
    mailboxes: dict[str, dict[str, tuple[str, int, str]]] = {}
    for member in members:
        kind, address, entry = member.split("\t")
        parsed = parse_entry(entry)
        if parsed:
            stream_id, priority = parsed
            mailboxes.setdefault(address, {})[member] = (kind, ALL_LANES.index(str(priority)) + 1, stream_id)
    return mailboxes
