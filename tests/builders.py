"""What tests say instead of plumbing: messages, a clock that is moved by hand, and a store whose verbs are awaited."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import redis
from msgspec import Raw
from msgspec.structs import astuple

from relay.core.session.deliver_frame import delivery
from relay.protocol.message import Message
from relay.settings import Settings
from relay.store.agents.presence import Joined
from relay.store.clock import Clock
from relay.store.keys import ALL_LANES
from relay.store.mailbox.leases import Search
from relay.store.mailbox.outcomes import AcceptOutcome
from relay.store.mailbox.settle import ReplyStep, Settlement, failure
from relay.store.mailbox.take import NotTaken, TakeAnswer, TakeRequest
from relay.store.record.draft import Draft
from relay.store.record.events import columns_of
from relay.store.record.receipt_lines import as_json
from relay.store.record.taken import Taken
from relay.store.redis.encoder import ScriptEncoder, keyed_packet
from relay.store.redis.scripts import script
from relay.store.store import Store, open_store
from tests.clusters import Cluster
from tests.servers import RealServer

ALICE, BOB, CAROL = "acme/alice", "acme/bob", "acme/carol"
NOON_MS = 1_800_000_000_000  # when every test begins
WAIT_S = 10.0  # far beyond what any answer takes
LEASE_MS = 60_000  # how long an instance is believed to be alive


class HandClock(Clock):
    """Stands still until it is moved. Stream ids follow the server's clock, everything else follows this one."""

    def __init__(self, now_ms: int = NOON_MS) -> None:
        super().__init__()
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, seconds: float) -> None:
        self._now_ms += round(seconds * 1_000)

    def heard(self, server_ms: int, asked_ms: int, heard_ms: int) -> None:
        """Believes nobody but the test."""


def a_message(id: str = "m-1", to: str = BOB, payload: Any = None, **fields: Any) -> Message:
    return Message(id=id, to=to, payload=Raw(orjson.dumps({"n": 1} if payload is None else payload)), **fields)


def delivered(row: Taken) -> dict[str, Any]:
    """A message as its recipient gets it."""
    fields: dict[str, Any] = orjson.loads(delivery(row))
    return fields


def free_search(*types: str) -> Search:
    """For what a puller looks that need not pay."""

    async def pay(_: int) -> None: ...

    return Search(list(types), pay, lambda _: None)


@dataclass(frozen=True, slots=True)
class Answer:
    """One result of accept, as accept.lua words it."""

    word: str
    values: tuple[Any, ...]

    @property
    def entry(self) -> str:
        return str(self.values[0])


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the event log."""

    kind: str
    at_ms: int
    entry: str
    seq: str
    attempt: str
    who: str
    instance: str
    reason: str
    taken_at: str
    tenant: str
    to: str
    sender: str
    id: str
    type: str
    thread: str
    priority: str
    bytes: str

    @classmethod
    def of(cls, columns: list[str]) -> "Event":
        kind, at_ms, *rest = columns
        return cls(kind, int(at_ms), *rest)


class Puller:
    """The simplest taker: a session that asks when told to and keeps what it is given."""

    def __init__(self, address: str, name: str, backlog_end: str, ack_timeout_ms: int = 0) -> None:
        self.address = address
        self.name = name
        self.backlog_end = backlog_end
        self.drained = True
        self.ack_timeout_ms = ack_timeout_ms
        self.gone: list[str] = []  # the handles that the last take said it holds no more
        self.most_bytes = 2**20
        self.credits_max = 0  # how many messages it and what is pushed to it later may be
        self.credits = 0  # what the last take left of them
        self.was_cut = False  # whether the last take gave less because of the bytes
        self._room = 0
        self._known: list[str] | None = None
        self._answer: asyncio.Future[list[Taken]] | None = None

    def asks(self, room: int, known: Iterable[str] | None) -> "asyncio.Future[list[Taken]]":
        self._room = room
        self._known = None if known is None else list(known)
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def request(self) -> TakeRequest:
        backlog_end = "" if self.drained else self.backlog_end
        return TakeRequest(
            *(self.name, self._room, self.most_bytes, self.ack_timeout_ms, backlog_end, self._known),
            credits_max=self.credits_max,
        )

    def answered(self, answer: TakeAnswer) -> None:
        """One that is not registered any more gets nothing."""
        assert self._answer is not None
        if answer in (NotTaken.BUSY, NotTaken.UNAVAILABLE):
            self._answer.set_exception(AssertionError("the store refused a take"))
        elif answer is NotTaken.GONE:
            self._answer.set_result([])
        else:
            self.gone = answer.gone
            self.was_cut = answer.is_cut
            self.credits = answer.credits
            self._answer.set_result(answer.rows)


class Ears:
    """Hears what one instance is told."""

    def __init__(self, client: redis.Redis, channel: str) -> None:
        self._client = client
        self._channel = channel
        self._subscription = client.pubsub(ignore_subscribe_messages=True)
        self._subscription.subscribe(channel)
        self.heard()  # returns only when the subscription is there

    def heard(self) -> list[str]:
        """The lines since the last time, each message's lines one after the other."""
        mark = f"mark {secrets.token_hex(4)}"
        lines: list[str] = []
        while True:
            self._client.publish(self._channel, mark)
            message = self._subscription.get_message(timeout=WAIT_S)
            while message is None or not message["data"].startswith("mark"):
                if message is not None:
                    lines += message["data"].split("\n")
                message = self._subscription.get_message(timeout=WAIT_S)
            if message["data"] == mark:
                return lines

    def close(self) -> None:
        self._subscription.close()


class Desk:
    """A store on a real server under a prefix of its own. Every verb waits for its answer."""

    def __init__(self, store: Store, clock: HandClock, client: Any) -> None:
        self.store = store
        self.keys = store.keys
        self.clock = clock
        self.redis = client  # of one server or of a Cluster
        self.encoder = ScriptEncoder(store.keys, clock, store.settings, store.instance, store.pipeline.publish_word)
        self._sessions = 0
        self._ears: list[Ears] = []

    # -- sending

    async def send(self, *messages: Message, sender: str = ALICE) -> list[Answer]:
        """All of them in one call, answers in order."""
        answers: list[asyncio.Future[Answer]] = []
        for message in messages:
            answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            answers.append(answer)

            def answered(_: Draft, outcome: AcceptOutcome, answer: "asyncio.Future[Answer]" = answer) -> None:
                answer.set_result(Answer(outcome.word, astuple(outcome)))

            self.store.accepting.accept(self.store.accepting.draft(sender, message, answered))
        return await asyncio.wait_for(asyncio.gather(*answers), WAIT_S)

    async def send_one(self, message: Message, sender: str = ALICE) -> Answer:
        (answer,) = await self.send(message, sender=sender)
        return answer

    # -- sessions

    def is_alive(self, instance: str, for_s: float = LEASE_MS / 1_000) -> None:
        """An instance says, as renew does, that it lives."""
        until_ms = self.clock.now_ms() + round(for_s * 1_000)
        for shard in range(self.keys.shards):
            self.redis.hset(self.keys.instances(shard), instance, until_ms)

    def new_session(self, instance: str | None = None) -> str:
        self._sessions += 1
        return f"{instance or self.store.instance}.{self._sessions}"

    async def join(
        self,
        address: str = BOB,
        session: str | None = None,
        mode: str = "exclusive",
        ack_timeout_s: float = 0,
        instance: str | None = None,
        window: int | None = None,
    ) -> Puller:
        """A session that has its backlog behind it; see join_at_backlog."""
        puller, _ = await self.join_at_backlog(address, session, mode, ack_timeout_s, instance, window)
        puller.drained = True
        return puller

    async def join_at_backlog(
        self,
        address: str = BOB,
        session: str | None = None,
        mode: str = "exclusive",
        ack_timeout_s: float = 0,
        instance: str | None = None,
        window: int | None = None,
    ) -> tuple[Puller, Joined]:
        """A session at its very beginning, and what it found."""
        name = session or self.new_session(instance)
        joined = await self.store.presence.join(address, name, mode, LEASE_MS, None, window=window)
        puller = Puller(address, name, joined.backlog_end, round(ack_timeout_s * 1_000))
        puller.drained = False
        return puller, joined

    async def leave(self, puller: Puller, reason: str = "closed") -> bool:
        return await self.store.presence.leave(puller.address, puller.name, reason)

    async def take(self, puller: Puller, room: int = 10, known: Iterable[str] | None = None) -> list[Taken]:
        answer = puller.asks(room, known)
        self.store.taking.take(puller.address, puller.request, puller.answered)
        return await asyncio.wait_for(answer, WAIT_S)

    async def take_one(self, puller: Puller) -> Taken:
        (taken,) = await self.take(puller, room=1)
        return taken

    # -- settling: each returns the refused handles with their codes

    async def ack(self, puller: Puller, *entries: str, rows: list[Taken] | None = None) -> dict[str, str]:
        """With the deliveries themselves as a session does that has kept them."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        entries = entries or tuple(row.entry for row in rows or ())
        self.store.settling.settle(
            Settlement(
                *("ack", puller.address, puller.name, entries, answer.set_result),
                backlog_end=puller.backlog_end,
                timed=puller.ack_timeout_ms > 0,
                rows=rows,
            )
        )
        return await self._refusals(answer)

    def kept(self, entry: str, address: str = BOB) -> Taken | None:
        """What a session keeps of a delivery while it holds it."""
        found = self.redis.xrange(self.keys.box(address), entry, entry) if "p" not in entry else []
        if not found:
            return None
        _, attempt = self.holders(address).get(entry, ("", 1))
        return Taken(entry, attempt, found[0][1]["head"], found[0][1]["opts"], b"")

    def pushed_to(self, address: str = BOB) -> tuple[str, int] | None:
        """The session to which new mail is pushed, and how many more messages it may get."""
        field = self.redis.hget(self.keys.pushes(self.keys.shard(address)), address)
        if field is None:
            return None
        session, credits, _ = field.split("\t")
        return session, int(credits)

    async def nack(
        self, puller: Puller, *entries: str, retry: bool = True, delay_s: float | None = None, reason: str = "failed"
    ) -> dict[str, str]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        extra = failure(reason, retry, delay_s)
        self.store.settling.settle(
            Settlement("nack", puller.address, puller.name, entries, answer.set_result, extra=extra)
        )
        return await self._refusals(answer)

    async def release(self, puller: Puller, *entries: str) -> dict[str, str]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.store.settling.settle(Settlement("release", puller.address, puller.name, entries, answer.set_result))
        return await self._refusals(answer)

    async def touch(self, puller: Puller, *entries: str, extend_s: float = 30) -> dict[str, str]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        extra = (round(extend_s * 1_000),)
        self.store.settling.settle(
            Settlement("touch", puller.address, puller.name, entries, answer.set_result, extra=extra)
        )
        return await self._refusals(answer)

    async def _refusals(self, answer: "asyncio.Future[Any]") -> dict[str, str]:
        refused = await asyncio.wait_for(answer, WAIT_S)
        assert refused is not None, "the store refused the call"
        return dict(refused)

    async def reply(self, puller: Puller, entry: str, payload: Any = "done", more: bool = False) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.store.settling.reply(
            ReplyStep(
                puller.address, puller.name, puller.backlog_end, entry, orjson.dumps(payload), more, answer.set_result
            )
        )
        return await asyncio.wait_for(answer, WAIT_S)

    async def cancel(self, id: str, to: str = BOB, sender: str = ALICE) -> str:
        tenant, _, recipient = to.partition("/")
        key = f"{tenant}\t{recipient}\t{sender.partition('/')[2]}\t{id}"
        packet = self.encoder.packet(
            script("cancel"),
            self.keys.shard(to),
            [to, key, sender],
            keys=self.keys.boxes(to),
        )
        word: bytes = await self.store.pipeline.reply(packet)
        return word.decode()

    async def call(self, name: str, address: str, before: list[Any], mailbox: list[Any], dead: bool = False) -> Any:
        """One script that is carried out once, on all lanes of one mailbox, past the wrappers."""
        return await self.store.pipeline.reply(self.packet(name, address, before, mailbox, dead, self.next_exchange()))

    async def run(self, name: str, key: str, *values: str | bytes | int) -> Any:
        """One script of one key, past the wrappers."""
        return await self.store.pipeline.reply(keyed_packet(script(name), key, *values))

    def next_exchange(self) -> int:
        """The number of the exchange in which a call goes out that is made now."""
        return self.store.pipeline.exchange + 1

    def packet(
        self, name: str, address: str, before: list[Any], mailbox: list[Any], dead: bool = False, exchange: int = 0
    ) -> bytes:
        """The same as wire bytes, as part of an exchange of this store."""
        return self.encoder.for_mailboxes(
            script(name),
            self.keys.shard(address),
            before,
            [[address, ALL_LANES, *mailbox]],
            with_dead=dead,
            number=(exchange, "test"),
        )

    # -- workers

    async def overdue(self, address: str = BOB) -> list[str]:
        """What a worker does now in the shard of this address."""
        shard = self.keys.shard(address)
        members = await self.store.overdue.due_entries(shard, self.clock.now_ms(), 1_000)
        return await self.store.overdue.carry_out(shard, members)

    async def expire(self, address: str = BOB) -> tuple[int, bool]:
        return (await self.store.expiry.expire(self.keys.shard(address), [address]))[address]

    # -- looking, with plain commands

    def shard_key(self, name: str, address: str = BOB) -> str:
        """A key that every script of the shard has, by the name that shard.lua gives it."""
        return self.keys.tag(self.keys.shard(address)) + name

    def depth(self, address: str = BOB, priority: int = 0) -> int:
        return int(self.redis.xlen(self.keys.box(address, priority)))

    def holders(self, address: str = BOB, priority: int = 0) -> dict[str, tuple[str, int]]:
        """The pending list: stream id -> owner and delivery count."""
        try:
            rows = self.redis.xpending_range(self.keys.box(address, priority), "agent", "-", "+", 10_000)
        except redis.ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            return {}
        return {row["message_id"]: (row["consumer"], row["times_delivered"]) for row in rows}

    def consumers(self, address: str = BOB, priority: int = 0) -> set[str]:
        return {row["name"] for row in self.redis.xinfo_consumers(self.keys.box(address, priority), "agent")}

    def due(self, address: str = BOB) -> dict[str, float]:
        """What must happen in the shard of this address: "kind handle" -> in how many seconds."""
        rows = self.redis.zrange(self.keys.due(self.keys.shard(address)), 0, -1, withscores=True)
        now_ms = self.clock.now_ms()
        parts = [(member.split("\t"), at_ms) for member, at_ms in rows]
        return {f"{kind} {entry}": (at_ms - now_ms) / 1_000 for (kind, _, entry), at_ms in parts}

    def known_ids(self, address: str = BOB) -> dict[str, str]:
        """ids of the shard: message id -> handle."""
        found = self.redis.hgetall(self.keys.ids(self.keys.shard(address)))
        return {key.rpartition("\t")[2]: entry for key, entry in found.items()}

    def bytes_held(self, address: str = BOB) -> int:
        return int(self.redis.hget(self.shard_key("bytes", address), address) or 0)

    def waits_since(self, address: str = BOB) -> float | None:
        return self.redis.zscore(self.keys.waiting(self.keys.shard(address)), address)

    def roster(self, address: str = BOB) -> list[str]:
        return list(self.redis.zrange(self.keys.roster(self.keys.shard(address)), 0, -1))

    def sums(self, address: str = BOB) -> dict[str, int]:
        """What the tenant of this address has in its shard."""
        tenant = address.partition("/")[0]
        found = self.redis.hgetall(self.keys.sums(self.keys.shard(address)))
        parts = [(*field.partition("\t")[::2], int(value)) for field, value in found.items()]
        return {what: value for whose, what, value in parts if whose == tenant}

    def sessions(self, address: str = BOB) -> list[str]:
        """Who is registered: a session and its mode each."""
        value = self.redis.hget(self.keys.presence(self.keys.shard(address)), address)
        return ["\t".join(line.split("\t")[:2]) for line in value.split("\n")] if value else []

    def dead_letters(self, address: str = BOB) -> list[dict[str, str]]:
        return [fields for _, fields in self.redis.xrange(self.keys.dead(address))]

    def failures(self, address: str = BOB) -> dict[str, str]:
        found = self.redis.hgetall(self.shard_key("failures", address))
        return {place.partition("\t")[2]: lines for place, lines in found.items()}

    def raw_range(self, key: str) -> list[tuple[str, list[str]]]:
        """A stream as the server tells it: the fields of an entry are one flat list."""
        found: list[tuple[str, list[str]]] = self.redis.eval("return redis.call('XRANGE', KEYS[1], '-', '+')", 1, key)
        return found

    def events(self, *kinds: str) -> list[Event]:
        """The event logs of all shards, or what of these kinds is in them."""
        logs = [self.raw_range(self.keys.events(shard)) for shard in range(self.keys.shards)]
        entries = [[field.encode() for field in fields] for log in logs for _, fields in log]
        found = [Event.of(columns) for fields in entries for columns in columns_of(fields)]
        return [event for event in found if not kinds or event.kind in kinds]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events()]

    async def receipts(self, sender: str = ALICE) -> list[dict[str, Any]]:
        """What waits for a sender, once everything under way has arrived."""
        await self.store.pipeline.finish()
        rows = [fields for _, fields in self.redis.xrange(self.keys.receipts(sender))]
        found = [orjson.loads(b"[%b]" % as_json(row["receipts"], sender)) for row in rows]
        assert [len(receipts) for receipts in found] == [int(row["count"]) for row in rows]
        return [receipt for receipts in found for receipt in receipts]

    def ears(self, instance: str | None = None, address: str = BOB) -> Ears:
        """Hears from now on what an instance is told about the shard of this address."""
        channel = self.keys.wake_prefix(self.keys.shard(address)) + (instance or self.store.instance)
        self._ears.append(Ears(self.redis, channel))
        return self._ears[-1]

    def close(self) -> None:
        for ears in self._ears:
            ears.close()


@asynccontextmanager
async def open_desk(
    server: RealServer | Cluster, prefix: str | None = None, clock: HandClock | None = None, **settings: Any
) -> AsyncIterator[Desk]:
    """With a prefix and a clock of another desk, this one is another instance on the same data."""
    clock = clock or HandClock()
    chosen = Settings(**({"shards": 1, "open_tenants": ("*",)} | settings))
    name = prefix or f"test-{secrets.token_hex(6)}"
    async with open_store(chosen, server.url, prefix=name, clock=clock) as store:
        with server.client() as client:
            desk = Desk(store, clock, client)
            desk.is_alive(store.instance)
            try:
                yield desk
            finally:
                desk.close()
