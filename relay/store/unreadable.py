"""Unreadable: deliveries that no client could read. They are buried instead of given, so that they stop nobody."""

import logging

from msgspec.structs import replace

from relay.store.mailbox.deadletters import UNREADABLE
from relay.store.mailbox.settle import Refusals, Settlement, Settling, failure
from relay.store.mailbox.take import TakeResult
from relay.store.record.body import is_whole
from relay.store.record.taken import Taken
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import Command, CommandPipeline, Outcome
from relay.store.redis.resp import encode_command

log = logging.getLogger(__name__)


class Unreadable:
    """The scripts see to head and opts; a body is JSON, which only an instance can check."""

    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder, settling: Settling) -> None:
        self._pipeline = pipeline
        self._keys = encoder.keys
        self._settling = settling

    def sift(self, address: str, holder: str, taken: TakeResult) -> TakeResult:
        """The same without what cannot be read: then it is cut, for there may be more to take."""
        spoilt = [row.entry for row in taken.rows if not _is_readable(row)]
        if not spoilt:
            return taken
        self._bury(address, holder, spoilt)
        return replace(taken, rows=[row for row in taken.rows if row.entry not in spoilt], is_cut=True)

    def _bury(self, address: str, holder: str, entries: list[str]) -> None:
        shard = self._keys.shard(address)
        for entry in entries:
            log.warning("record_unreadable", extra={"shard": shard, "mailbox": address, "entry": entry})
        settlement = Settlement("nack", address, holder, entries, _ignore, extra=failure(UNREADABLE, False, None))
        self._settling.settle(settlement)
        count = encode_command("HINCRBY", self._keys.totals(shard), UNREADABLE, len(entries))
        self._pipeline.submit(Command(count, _ignore, may_repeat=False))


def _is_readable(row: Taken) -> bool:
    return is_whole(row.body, int(row.head.rpartition("\t")[2]))


def _ignore(_: Refusals | Outcome | None) -> None:
    """What is not carried out is found again by whoever takes it next."""
