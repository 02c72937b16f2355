"""Twins: two stores that get the same traffic, one by the plain scripts and one by the full ones."""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import astuple

from relay.core.session.deliver_frame import deliver_frame
from relay.protocol.message import Message
from relay.store.mailbox.outcomes import AcceptOutcome
from relay.store.mailbox.settle import PLAIN, Refusals, Settlement
from relay.store.record.draft import Draft
from relay.store.record.taken import Taken
from tests.builders import WAIT_S, Desk, Puller

FAR_MS = 4_102_444_800_000  # ahead of every server's clock: the ids of a stream that has been there are counted from it
SERVERS_ID = re.compile(r"1\d{12}-\d+(?:p\d)?(?:\t\d+(?=\texpired))?")  # of a shadow, and for how long it was there
# What differs by design: which calls an instance made, and how receipts travel. `receipts_of` has those themselves.
OF_THE_WAY = re.compile(r":(?:outbox|forwarded:\d+|receipts:.*)$")
EVENT_LOG = re.compile(r":events$")
PUSHES = re.compile(r":pushes$")
HELD_MS = 6  # the column of an event line that follows the server's clock when ack.lua writes it

# Each key with its type and value; of a stream the entries, and the groups with their place, pending
# rows and whose they are: a session that takes and gets nothing has no consumer, one that was pushed to has.
DUMP = """
local found = {}
local function groups_of(name)
  local groups = {}
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', name)) do
    local consumers = {}
    for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', name, group[2])) do
      if consumer[4] > 0 then consumers[#consumers + 1] = consumer[2] end
    end
    local rows = redis.call('XPENDING', name, group[2], '-', '+', 1000)
    for _, row in ipairs(rows) do row[3] = 0 end
    table.sort(consumers)
    groups[#groups + 1] = {group[2], group[8], consumers, rows}
  end
  return groups
end
local values = {
  hash = function(name) return redis.call('HGETALL', name) end,
  zset = function(name) return redis.call('ZRANGE', name, 0, -1, 'WITHSCORES') end,
  set = function(name) return redis.call('SMEMBERS', name) end,
  string = function(name) return {redis.call('GET', name)} end,
  stream = function(name) return {redis.call('XRANGE', name, '-', '+'), groups_of(name)} end,
}
for _, name in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local kind = redis.call('TYPE', name).ok
  if not string.find(name, ':calls$') then found[#found + 1] = {name, kind, values[kind](name)} end  -- packed
end
return found
"""


@dataclass
class Holder:
    """A session as its instance knows it."""

    puller: Puller
    mode: str
    window: int
    held: dict[str, Taken] = field(default_factory=dict)
    stale: dict[str, Taken] = field(default_factory=dict)  # what it had, and lost without an act of its own

    @property
    def room(self) -> int:
        return self.window - len(self.held)


@dataclass(frozen=True)
class Sending:
    """One message on its way, sent by a session or by HTTP."""

    sender: str
    via: str
    message: Message


class Twin:
    """A store whose sessions take whatever they may. Both give the same ids to what comes into these mailboxes."""

    def __init__(self, desk: Desk, is_plain: bool, mailboxes: list[str]) -> None:
        self.desk = desk
        self.is_plain = is_plain
        self.holders: dict[str, Holder] = {}
        self.plain_sends = 0
        self.plain_acks = 0
        for n, box in enumerate(box for address in mailboxes for box in desk.keys.boxes(address)):
            self.desk.redis.xadd(box, {"first": "1"}, id=f"{FAR_MS + n}-1")
            self.desk.redis.xdel(box, f"{FAR_MS + n}-1")

    # -- what happens

    async def join(self, name: str, address: str, session: str, mode: str, window: int, timeout_s: float) -> str:
        puller, joined = await self.desk.join_at_backlog(address, session, mode, timeout_s, window=window)
        puller.drained = True
        self.holders[name] = Holder(puller, mode, window)
        return self.told(joined.backlog_end)

    async def leave(self, name: str) -> bool:
        return await self.desk.leave(self.holders.pop(name).puller)

    async def send(self, sendings: list[Sending]) -> list[Any]:
        """All in one exchange."""
        answers: list[asyncio.Future[AcceptOutcome]] = []
        for sending in sendings:
            answer: asyncio.Future[AcceptOutcome] = asyncio.get_running_loop().create_future()
            answers.append(answer)

            def answered(draft: Draft, came: AcceptOutcome, answer: "asyncio.Future[AcceptOutcome]" = answer) -> None:
                self.plain_sends += draft.is_plain
                answer.set_result(came)

            accepting = self.desk.store.accepting
            draft = accepting.draft(sending.sender, sending.message, answered, via=sending.via)
            draft.is_plain = draft.is_plain and self.is_plain
            accepting.accept(draft)
        outcomes = await asyncio.wait_for(asyncio.gather(*answers), WAIT_S)
        return [(outcome.word, *(self.told(str(value)) for value in astuple(outcome))) for outcome in outcomes]

    async def ack(self, acks: list[tuple[str, list[str]]]) -> list[dict[str, str]]:
        """Of each of these sessions what it holds, or held, all in one exchange."""
        # Acks in lanes are never plain, and would cut the exchange into calls, each of which has a pace of its own.
        may_be_plain = self.is_plain and not any("p" in entry for _, entries in acks for entry in entries)
        answers = [self._ack(self.holders[name], entries, may_be_plain) for name, entries in acks]
        return await asyncio.wait_for(asyncio.gather(*answers), WAIT_S)

    def _ack(self, holder: Holder, entries: list[str], may_be_plain: bool) -> "asyncio.Future[Refusals]":
        answer: asyncio.Future[Refusals] = asyncio.get_running_loop().create_future()
        known = holder.stale | holder.held
        rows = [known[entry] for entry in entries]

        def answered(refusals: Refusals | None) -> None:
            assert refusals is not None
            self.plain_acks += settlement.how == PLAIN
            for row in rows:
                holder.held.pop(row.entry, None)
                holder.stale.pop(row.entry, None)
            answer.set_result(refusals)

        settlement = Settlement(
            *("ack", holder.puller.address, holder.puller.name, [row.entry for row in rows], answered),
            backlog_end=holder.puller.backlog_end,
            timed=holder.puller.ack_timeout_ms > 0,
            rows=rows if may_be_plain else None,
        )
        self.desk.store.settling.settle(settlement)
        return answer

    async def give_up(self, name: str, how: str, entries: list[str], **options: Any) -> dict[str, str]:
        """A nack or a release."""
        holder = self.holders[name]
        refused: dict[str, str] = await getattr(self.desk, how)(holder.puller, *entries, **options)
        for entry in entries:
            del holder.held[entry]
        return refused

    async def come_to_rest(self) -> None:
        """Each session has what it may have: what was pushed to it, or what it asks for when nothing is."""
        for holder in self.holders.values():
            puller = holder.puller
            self._compare(holder)
            pushed_to = self.desk.pushed_to(puller.address)
            if holder.room > 0 and (pushed_to is None or pushed_to[0] != puller.name):
                puller.credits_max = 0 if puller.ack_timeout_ms else holder.room
                self._given(holder, await self.desk.take(puller, holder.room))

    def _compare(self, holder: Holder) -> None:
        """It learns what was pushed to it, and what it has lost."""
        owned = self._owned(holder.puller)
        for entry in holder.held.keys() - {row.entry for row in owned}:
            holder.stale[entry] = holder.held.pop(entry)
        self._given(holder, [row for row in owned if row.entry not in holder.held])

    def _owned(self, puller: Puller) -> list[Taken]:
        """What the store has as this session's: of a push that is all that a test needs to see."""
        rows = []
        lanes = "0" + (self.desk.redis.hget(self.desk.shard_key("lanes"), puller.address) or "")
        for priority in map(int, lanes):
            for id, (consumer, attempt) in self.desk.holders(puller.address, priority).items():
                if consumer == puller.name:
                    (_, fields), *_ = self.desk.redis.xrange(self.desk.keys.box(puller.address, priority), id, id)
                    entry = f"{id}p{priority}" if priority else id
                    rows.append(Taken(entry, attempt, fields["head"], fields["opts"], b""))
        return rows

    def _given(self, holder: Holder, rows: list[Taken]) -> None:
        whole = [Taken(row.entry, row.attempt, row.head, row.opts, b'""') for row in rows]
        deliver_frame(whole, holder.puller.backlog_end)
        for row in whole:
            row.taken_at_ms = self.desk.clock.now_ms()
            holder.held[row.entry] = row
            holder.stale.pop(row.entry, None)

    # -- what is there

    def told(self, text: str) -> str:
        """Without what is by chance: the name of the instance, and ids by the server's clock."""
        return SERVERS_ID.sub("an id", text).replace(self.desk.store.instance, "this instance")

    def held(self) -> dict[str, list[tuple[str, int]]]:
        """Entry and attempt of what each session has."""
        return {
            name: [(entry, row.attempt) for entry, row in sorted(holder.held.items())]
            for name, holder in self.holders.items()
        }

    def stale(self) -> dict[str, list[str]]:
        return {name: sorted(holder.stale) for name, holder in self.holders.items()}

    def content(self) -> dict[str, Any]:
        """Every key, with its value as it must be in both."""
        prefix = f"{self.desk.keys.prefix}:"
        found = self.desk.redis.eval(DUMP, 0, prefix)
        values = {name: self._value(name, kind, value) for name, kind, value in found if not OF_THE_WAY.search(name)}
        return {name.removeprefix(prefix): value for name, value in values.items() if value}

    def _value(self, name: str, kind: str, value: list[Any]) -> Any:
        if kind in ("hash", "zset"):
            pairs = dict(zip(value[::2], value[1::2], strict=True))
            if PUSHES.search(name):
                return dict(pushed for address, row in pairs.items() if (pushed := self._pushed(address, row)))
            return {self.told(field): self.told(text) for field, text in pairs.items()}
        if EVENT_LOG.search(name):
            return self._events(value[0])
        # A stream without entries, groups and consumers is as good as none.
        return self._all_told(value) if any(value) else None

    def _all_told(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._all_told(part) for part in value]
        return self.told(value) if isinstance(value, str) else value

    def _pushed(self, address: str, value: str) -> tuple[str, tuple[str, int]] | None:
        """A session whose credits are used up is as good as one without. Their count begins anew with each take."""
        session, credits, _ = value.split("\t")
        return (address, (self.told(session), int(credits))) if credits != "0" else None

    def _events(self, entries: list[Any]) -> dict[str, list[str]]:
        """The events of each life in their order: how calls are cut is the matter of whoever makes them."""
        lives: dict[str, list[str]] = {}
        for _, fields in entries:
            for value in fields[1::2]:
                first, *lines = value.split("\n")
                for line in lines:
                    columns = self.told(line).split("\t")
                    columns[HELD_MS] = columns[HELD_MS] and "held"
                    life = "\t".join(columns[7:11])
                    lives.setdefault(life, []).append(f"{self.told(first)} {columns}")
        return lives

    def receipts_of(self, sender: str) -> list[tuple[str, str]]:
        """At_ms and line of each that is on its way to a sender or has arrived."""
        found: list[tuple[str, str]] = []
        for _, fields in self.desk.redis.xrange(self.desk.keys.receipts(sender)):
            at_ms, *lines = fields["receipts"].split("\n")
            assert int(fields["count"]) == len(lines)
            found += [(at_ms, line) for line in lines]
        for shard in range(self.desk.keys.shards):
            for _, flat in self.desk.raw_range(self.desk.keys.outbox(shard)):
                for name, value in zip(flat[::2], flat[1::2], strict=True):
                    first, *lines = value.split("\n")
                    whose, _, rest = first.partition("\t")
                    if name == "receipts" and whose == sender:
                        count, _, at_ms = rest.partition("\t")
                        assert int(count) == len(lines)
                        found += [(at_ms, line) for line in lines]
        return sorted(found)


def differences(plain: Any, full: Any, place: str = "") -> dict[str, tuple[Any, Any]]:
    """Where two values differ, and what each has there."""
    found: dict[str, tuple[Any, Any]] = {}
    if isinstance(plain, dict) and isinstance(full, dict):
        for name in plain.keys() | full.keys():
            found |= differences(plain.get(name), full.get(name), f"{place}/{name}")
    elif isinstance(plain, list) and isinstance(full, list) and len(plain) == len(full):
        for n, (one, other) in enumerate(zip(plain, full, strict=True)):
            found |= differences(one, other, f"{place}/{n}")
    elif plain != full:
        found[place] = plain, full
    return found
