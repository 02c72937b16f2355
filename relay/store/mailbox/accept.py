"""Accepting: messages on their way into mailboxes, gathered into one call per shard."""

from typing import Any

from relay.settings import Settings
from relay.store.keys import ALL_LANES
from relay.store.mailbox import accept_plain
from relay.store.mailbox.lanes import Lanes
from relay.store.mailbox.outcomes import Unavailable, accept_outcome
from relay.store.memory import Memory
from relay.store.record.draft import Draft, Drafting
from relay.store.redis.batcher import ShardBatcher
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline, Outcome
from relay.store.redis.scripts import script
from relay.store.witness import Witness


class AcceptBatcher(ShardBatcher[Draft]):
    """A batch becomes two calls: one for all messages of mailboxes with a special one, one for the rest."""

    def _batches(self, items: list[Draft]) -> tuple[list[list[Draft]], int]:
        (batch,), weight = super()._batches(items)
        special = _special(batch)
        if not special:
            return [batch], weight
        apart: list[Draft] = []
        plain: list[Draft] = []
        for draft in batch:
            if draft.to in special:
                draft.is_plain = False
                apart.append(draft)
            else:
                plain.append(draft)
        return [apart, plain] if plain else [apart], weight


def _special(batch: list[Draft]) -> set[str]:
    """The mailboxes that get something special, or the same twice: their order must stay."""
    special: set[str] = set()
    keys: set[str] = set()
    for draft in batch:
        if not draft.is_plain or draft.key in keys:
            special.add(draft.to)
        keys.add(draft.key)
    return special


class Accepting:
    """Nothing here blocks: callers hand in messages and are called back."""

    def __init__(
        self, pipeline: CommandPipeline, encoder: ScriptEncoder, memory: Memory, lanes: Lanes, witness: Witness
    ) -> None:
        self._encoder = encoder
        self._witness = witness
        self._keys = encoder.keys
        self._settings: Settings = encoder.settings
        self._memory = memory
        self._lanes = lanes
        self._rations = [
            self._settings.max_threads,
            per_shard(self._settings.sender_max_mailboxes, self._keys.shards),
            per_shard(self._settings.tenant_max_mailboxes, self._keys.shards),
        ]
        self.wakes_sent = 0
        self.wakes_unheard = 0
        drafting = Drafting(self._keys, self._settings, encoder.clock)
        self.draft = drafting.draft
        self.lives_ms = drafting.lives_ms
        self._accepts = AcceptBatcher(pipeline, self._encode_accept, self._accepted, needs_replicas=True)

    def accept(self, draft: Draft) -> None:
        self._accepts.put(draft.shard, draft)

    def _encode_accept(self, shard: int, drafts: list[Draft]) -> bytes:
        self._memory.add(len(drafts), sum(draft.size for draft in drafts))
        if drafts[0].is_plain:
            return accept_plain.encode(self._encoder, shard, drafts)
        return self._encode_special(shard, drafts)

    def _encode_special(self, shard: int, drafts: list[Draft]) -> bytes:
        settings = self._settings
        mailboxes: dict[str, list[Any]] = {}
        for draft in drafts:
            mailbox = mailboxes.get(draft.to)
            if mailbox is None:
                closed = int(not settings.is_open(draft.to.partition("/")[0]))
                lanes = self._lanes.of(draft.to)
                mailbox = [draft.to, lanes, closed, settings.mailbox_max_messages, settings.mailbox_max_bytes, []]
                mailboxes[draft.to] = mailbox
            if draft.priority:
                mailbox[1] = ALL_LANES
        in_order = list(mailboxes.values())
        for draft in drafts:
            mailbox = mailboxes[draft.to]
            mailbox[5] += _row(draft, mailbox[1])
        seqs_ms = 2 * self._keys.ttl_ms
        return self._encoder.for_mailboxes(
            script("accept"), shard, [seqs_ms, self._keys.dedup_window_ms, self._keys.ttl_ms, self._rations], in_order
        )

    def _accepted(self, drafts: list[Draft], outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            for draft in drafts:
                draft.answer(draft, Unavailable(str(outcome)))
            return
        self.wakes_sent += outcome[0]
        self.wakes_unheard += outcome[1]
        self._witness.promised(drafts[0].shard, outcome[2])
        again = accept_plain.answer(drafts, outcome) if drafts[0].is_plain else self._answer(drafts, outcome[3])
        for draft in again:
            draft.is_plain = False
        if again:
            self._accepts.put_back(again[0].shard, again)

    def _answer(self, drafts: list[Draft], results: list[Any]) -> list[Draft]:
        """Answers each draft; returns those whose mailbox uses lanes that the call did not name."""
        in_order = [draft for drafts_of in accept_plain.by_mailbox(drafts).values() for draft in drafts_of]
        again = []
        for draft, result in zip(in_order, results, strict=True):
            if result[0] == b"lanes":
                self._lanes.widen(draft.to)
                again.append(draft)
            else:
                draft.answer(draft, accept_outcome(result))
        return again


def per_shard(most: int, shards: int) -> int:
    """A shard's part of a limit for all shards: twice its share, because names are distributed unevenly."""
    return most if shards == 1 else -(-2 * most // shards)


def _row(draft: Draft, lanes: str) -> list[Any]:
    """One message as accept.lua wants it. cmsgpack in Redis knows no binary strings."""
    lane = lanes.index(str(draft.priority)) + 1
    return [lane, draft.key, draft.thread_key, draft.rest, draft.opts, draft.body.decode(), draft.size]
