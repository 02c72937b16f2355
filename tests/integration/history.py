"""Random histories: every step of clients, workers and instances, on the store and on the model beside it."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import strategies as st

from tests.builders import LEASE_MS, Desk, HandClock, a_message, delivered, open_desk
from tests.integration.model import (
    DEAD_MAX,
    FINAL,
    IDS,
    MAX_BYTES,
    MAX_MESSAGES,
    PRIORITIES,
    RECIPIENTS,
    SENDERS,
    TTL_MS,
    WINDOW_MS,
    Mail,
    Model,
    Session,
)
from tests.servers import RealServer

WINDOW = 5  # of every session, as far as pushes go: less than a mailbox holds, so that credits run out

# What hypothesis chooses a thing by: its place in a list that is made when the step is taken.
a_place = st.integers(0, 63)
a_desk = st.integers(0, 1)
a_recipient = st.sampled_from(RECIPIENTS)
one_in_four = st.sampled_from((False, False, False, True))
some_places = st.lists(a_place, min_size=1, max_size=3)


class History:
    """Two relay processes on one store; sessions come, go, are replaced and crash. Each step checks its answer."""

    def __init__(self, desks: tuple[Desk, Desk], clock: HandClock) -> None:
        self.desks = desks
        self.desk = desks[0]
        self.clock = clock
        self.model = Model()
        self.sessions: list[Session] = []
        self.seen_due: dict[int, list[str]] = {}  # what a worker last found due, by shard
        self.running = ["i0", "i1"]  # instances whose process lives
        self.started = 1
        self.taken: list[tuple[str, str]] = []  # who got which entry, in their order
        self.lease: dict[tuple[str, int], int] = {}  # until when an instance is believed alive in a shard

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def acting(self) -> list[Session]:
        """Sessions that can still do something, also those that do not know yet that they were replaced."""
        return [session for session in self.sessions if not session.crashed]

    def serving(self, address: str) -> list[Session]:
        return [session for session in self.acting() if session.here and session.address == address]

    def believed_alive(self, session: Session) -> bool:
        return self.lease[session.instance, session.desk.keys.shard(session.address)] > self.now_ms

    # -- senders

    async def sends(self, desk: int, sender: str, to: str, ids: list[str], push_is_lost: bool, **fields: Any) -> None:
        size = fields.pop("size")
        fields["priority"] *= to != RECIPIENTS[0]  # whose mailbox has one lane, as most have
        is_plain = not (fields["priority"] or fields["delay_s"] or fields["ack_timeout_s"])
        pushed_to = self.desk.pushed_to(to)
        messages = [a_message(one, to=to, payload="x" * (size - 2), **fields) for one in ids]
        answers = await self.desks[desk].send(*messages, sender=sender)
        for message, answer in zip(messages, answers, strict=True):
            key = (sender, to, message.id)
            ended_at, how = self.model.ended.get(key, (-WINDOW_MS, ""))
            living = self.model.living(to)
            waiting = [mail for mail in living if mail.key == key]
            if waiting:
                assert (answer.word, answer.values) == ("duplicate", (waiting[0].entry, "", 0))
            elif ended_at + WINDOW_MS > self.now_ms:
                assert (answer.word, answer.values[1]) == ("duplicate", how)
            elif len(living) >= MAX_MESSAGES or sum(mail.size for mail in living) + size > MAX_BYTES:
                assert (answer.word, answer.values[0]) == ("full", len(living))
                assert answer.values[1] == sum(mail.size for mail in living)
            else:
                assert answer.word == "stored"
                self.stored(message, sender, answer.entry, answer.values[1], size)
        if pushed_to and is_plain and all(answer.word == "stored" for answer in answers):
            self.pushed(to, *pushed_to, [answer.entry for answer in answers], push_is_lost)

    async def takes_all_and_gets_more(
        self, desk: int, sender: str, to: str, at: int, ids: list[str], push_is_lost: bool
    ) -> None:
        """Ordinary mail for a session that has just been given everything."""
        await self.takes(to, at, 9, answer_is_lost=False, looks_again=True, gives_credits=True)
        ordinary: dict[str, Any] = {"priority": 0, "delay_s": 0, "ack_timeout_s": None, "ttl_s": None}
        for receipt in (True, "all"):
            await self.sends(
                desk, sender, to, [f"{one}-{receipt}" for one in ids], push_is_lost, size=2, receipt=receipt, **ordinary
            )

    def pushed(self, to: str, name: str, credits: int, entries: list[str], push_is_lost: bool) -> None:
        """As many as there were credits for belong to the session at once."""
        (session,) = [session for session in self.sessions if session.puller.name == name]
        for mail in self.model.living(to):
            if mail.entry in entries[:credits]:
                mail.becomes("held", None, session)
        if not push_is_lost:
            session.knows += entries[:credits]
            self.taken += [(to.partition("/")[2], entry) for entry in entries[:credits]]

    def stored(self, message: Any, sender: str, entry: str, seq: int, size: int) -> None:
        last, at_ms = self.model.threads.get((sender, message.to), (0, self.now_ms))
        may_start_again = self.now_ms - at_ms > TTL_MS
        assert seq == last + 1 or (may_start_again and seq == 1)
        self.model.threads[sender, message.to] = (seq, self.now_ms)
        ttl_ms = min(TTL_MS, int(message.ttl_s * 1_000)) if message.ttl_s else TTL_MS
        self.model.mails.append(
            Mail(
                message.id,
                sender,
                message.to,
                message.priority,
                size,
                entry,
                seq,
                accepted_at=self.now_ms,
                expires_at=self.now_ms + ttl_ms,
                not_before=self.now_ms + int(message.delay_s * 1_000) if message.delay_s else 0,
                max_attempts=message.max_attempts,
                ack_ms=int((message.ack_timeout_s or 0) * 1_000),
                receipt=message.receipt,
            )
        )

    async def cancels(self, at: int) -> None:
        if not self.model.mails:
            return
        mail = self.model.mails[at % len(self.model.mails)]
        there = [other for other in self.model.living(mail.to) if other.key == mail.key]

        word = await self.desk.cancel(mail.id, mail.to, mail.sender)

        if not there:
            assert word == "not_found"
        elif there[0].state == "held":
            assert word == "held"
        else:
            assert word == "cancelled"
            self.model.end(there[0], "cancelled", self.now_ms)

    # -- sessions

    async def joins(
        self, desk: int, address: str, instance: int, mode: str, ack_timeout_s: float, drained: bool
    ) -> None:
        name = self.running[instance % len(self.running)]
        puller, joined = await self.desks[desk].join_at_backlog(
            address, f"{name}.{len(self.sessions)}", mode, ack_timeout_s
        )
        puller.drained = drained

        for other in self.sessions:
            stays = mode == other.mode == "shared" and self.believed_alive(other)
            if other.here and other.address == address and not stays:
                other.here = False
                self.model.release(other)
        for mail in self.model.living(address):
            if mail.expires_at <= self.now_ms:
                self.model.end(mail, "expired", self.now_ms)
        living = self.model.living(address)
        assert (joined.pending, joined.bytes) == (len(living), sum(mail.size for mail in living))
        assert joined.oldest_ms == min((mail.accepted_at for mail in living), default=None)
        assert joined.backlog_end == "{}-{}".format(*max((mail.place for mail in living), default=(0, 0)))
        self.lease.setdefault((name, self.desk.keys.shard(address)), self.now_ms + LEASE_MS)
        self.sessions.append(Session(puller, self.desks[desk], name, mode))

    async def leaves(self, at: int) -> None:
        acting = self.acting()
        if acting:
            await self.gone(acting[at % len(acting)])

    async def gone(self, session: Session) -> None:
        left = await session.desk.leave(session.puller)
        assert left == session.here
        session.here, session.crashed = False, True
        self.model.release(session)

    async def an_instance_crashes(self, at: int) -> None:
        name = self.running.pop(at % len(self.running))
        for session in self.sessions:
            session.crashed = session.crashed or session.instance == name
        self.started += 1
        self.running.append(f"i{self.started}")

    async def instances_renew(self) -> None:
        for name in self.running:
            for shard in range(self.desk.keys.shards):
                self.lease[name, shard] = self.now_ms + LEASE_MS
            self.desk.is_alive(name)

    # -- settling

    async def takes(
        self, address: str, at: int, room: int, answer_is_lost: bool, looks_again: bool, gives_credits: bool
    ) -> None:
        if not self.serving(address):
            await self.joins(at % 2, address, at, "exclusive", 0, True)
        serving = self.serving(address)
        if serving[0].mode == "exclusive" and at % 3 == 0:  # also those that do not know yet that they were replaced
            serving = [session for session in self.acting() if session.address == address]
        session = serving[at % len(serving)]
        known = list(session.knows) if looks_again else None
        held = sum(mail.holder is session for mail in self.model.mails)
        may_have_credits = gives_credits and session.puller.drained and not session.puller.ack_timeout_ms
        session.puller.credits_max = max(0, WINDOW - held) if may_have_credits else 0

        rows = await session.desk.take(session.puller, room, known)

        if known is not None and session.here:
            held = {mail.entry for mail in self.model.mails if mail.holder is session}
            assert session.puller.gone == [entry for entry in known if entry not in held]
            session.knows = [entry for entry in known if entry in held]
            for mail in self.model.mails:
                if mail.holder is session and mail.entry not in known:
                    mail.becomes("available")
        given = self.model.take(session, room if session.here else 0, self.now_ms)
        assert [(row.entry, row.attempt, delivered(row)["seq"]) for row in rows] == [
            (one.entry, one.attempt, one.seq) for one in given
        ]
        self.taken += [(address.partition("/")[2], row.entry) for row in rows]
        self.what_was_read_too_far_is_put_off(address)
        if not answer_is_lost:
            session.knows = list(dict.fromkeys([*session.knows, *(row.entry for row in rows)]))

    def what_was_read_too_far_is_put_off(self, address: str) -> None:
        """How far a take reads beyond what it gives is its own affair; what is delayed it parks there."""
        for mail in self.model.living(address):
            owner, _ = self.desk.holders(address, mail.priority).get(mail.stream_id, ("", 0))
            if owner == "~parked" and mail.state == "available" and mail.not_before > self.now_ms:
                mail.becomes("parked", mail.not_before)

    def chosen(self, at: int, mails: list[int]) -> tuple[Session, list[Mail]] | None:
        """A session, and mails of its mailbox: mostly those that it holds, sometimes any."""
        acting = self.acting()
        holding = [session for session in acting if any(mail.holder is session for mail in self.model.mails)]
        anybody = at % 5 == 0 or not holding
        sessions = acting if anybody else holding
        if not sessions:
            return None
        session = sessions[at % len(sessions)]
        choice = [
            mail for mail in self.model.mails if mail.to == session.address and (anybody or mail.holder is session)
        ]
        if not choice:
            return None
        return session, list({id(mail): mail for mail in (choice[n % len(choice)] for n in mails)}.values())

    def refusals(self, session: Session, mails: list[Mail]) -> dict[str, str]:
        answers = {mail.entry: self.model.answer(mail, session) for mail in mails}
        return {entry: code for entry, code in answers.items() if code}

    def settled(self, session: Session, mails: list[Mail], refused: dict[str, str]) -> list[Mail]:
        """Checks who was refused; returns the others, which the session forgets."""
        assert refused == self.refusals(session, mails)
        done = [mail for mail in mails if mail.entry not in refused]
        entries = {mail.entry for mail in mails}
        session.knows = [entry for entry in session.knows if entry not in entries]
        return done

    async def acks(self, at: int, mails: list[int], are_kept: bool) -> None:
        if chosen := self.chosen(at, mails):
            session, named = chosen
            kept = [row for mail in named if (row := session.desk.kept(mail.entry, mail.to))]
            rows = kept if are_kept and len(kept) == len(named) else None
            refused = await session.desk.ack(session.puller, *(mail.entry for mail in named), rows=rows)
            for mail in self.settled(session, named, refused):
                self.model.end(mail, "acked", self.now_ms)

    async def nacks(self, at: int, mails: list[int], retry: bool, delay_s: float | None) -> None:
        if chosen := self.chosen(at, mails):
            session, named = chosen
            entries = [mail.entry for mail in named]
            refused = await session.desk.nack(session.puller, *entries, retry=retry, delay_s=delay_s)
            for mail in self.settled(session, named, refused):
                self.model.fail(mail, self.now_ms, retry, -1 if delay_s is None else round(delay_s * 1_000))

    async def releases(self, at: int, mails: list[int]) -> None:
        if chosen := self.chosen(at, mails):
            session, named = chosen
            refused = await session.desk.release(session.puller, *(mail.entry for mail in named))
            for mail in self.settled(session, named, refused):
                mail.becomes("available")

    async def touches(self, at: int, mails: list[int], extend_s: int) -> None:
        if chosen := self.chosen(at, mails):
            session, named = chosen
            entries = [mail.entry for mail in named]
            refused = await session.desk.touch(session.puller, *entries, extend_s=extend_s)
            assert refused == self.refusals(session, named)
            for mail in named:
                if mail.entry not in refused and mail.until_ms is not None:
                    mail.until_ms = self.now_ms + extend_s * 1_000

    # -- time and workers

    async def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def a_worker_looks(self, desk: int) -> None:
        for shard in range(self.desk.keys.shards):
            self.seen_due[shard] = await self.desks[desk].store.overdue.due_entries(shard, self.now_ms, 1_000)

    async def a_worker_does_what_it_saw(self, desk: int) -> None:
        for shard, members in self.seen_due.items():
            await self.desks[desk].store.overdue.carry_out(shard, members)
            self.model.overdue(members, self.now_ms)

    async def a_worker_does_what_is_due(self, desk: int) -> None:
        await self.a_worker_looks(desk)
        await self.a_worker_does_what_it_saw(desk)

    async def a_sweeper_comes(self, address: str) -> None:
        count, more = await self.desk.expire(address)
        assert (count, more) == (self.model.sweep(address, self.now_ms), False)

    async def a_worker_ends_sessions_of_dead_instances(self) -> None:
        for session in self.sessions:
            if session.here and not self.believed_alive(session):
                await self.gone(session)

    # -- what must always be true

    def the_store_is_as_the_model_says(self) -> None:
        for address in RECIPIENTS:
            living = self.model.living(address)
            assert self.desk.bytes_held(address) == sum(mail.size for mail in living)
            for priority in PRIORITIES:
                self.check_lane(address, priority, [mail for mail in living if mail.priority == priority])
            self.check_due(address, living)
            since = self.desk.waits_since(address)
            if living:
                assert since is not None
                assert since <= min(mail.accepted_at for mail in living)
            self.check_push(address, living)
        self.check_ids()
        self.check_sums()

    def check_push(self, address: str, living: list[Mail]) -> None:
        """Only who serves alone is pushed to, within its window, and nothing that waits is overtaken."""
        pushed_to = self.desk.pushed_to(address)
        if pushed_to is None:
            return
        (session,) = [session for session in self.sessions if session.puller.name == pushed_to[0]]
        assert session.here
        assert session.mode == "exclusive"
        assert "available" not in {mail.state for mail in living}
        assert pushed_to[1] + sum(mail.holder is session for mail in living) <= WINDOW

    def check_sums(self) -> None:
        """What is counted by tenant, and who is on the roster, is what is there."""
        living = [mail for mail in self.model.mails if mail.alive]
        keys = [self.desk.keys.sums(shard) for shard in range(self.desk.keys.shards)]
        fields = [f"acme\t{what}" for what in ("messages", "bytes", "dead")]
        found = [sum(int(self.desk.redis.hget(key, field) or 0) for key in keys) for field in fields]
        dead = sum(self.model.dead_letters[address] for address in RECIPIENTS)
        assert found == [len(living), sum(mail.size for mail in living), dead]
        for address in RECIPIENTS:
            if self.model.living(address):
                assert address in self.desk.roster(address)

    def check_lane(self, address: str, priority: int, living: list[Mail]) -> None:
        entries = self.desk.redis.xrange(self.desk.keys.box(address, priority))
        pending = self.desk.holders(address, priority)
        assert [entry for entry, _ in entries] == [mail.stream_id for mail in living]
        assert pending.keys() <= {mail.stream_id for mail in living}, "a ghost"
        for mail in living:
            owner, attempt = pending.get(mail.stream_id, ("~ready", 1))
            assert attempt == mail.attempt
            if mail.state == "held":
                assert mail.holder is not None
                assert owner == mail.holder.puller.name
            else:
                assert owner == ("~ready" if mail.state == "available" else "~parked")

    def check_due(self, address: str, living: list[Mail]) -> None:
        """Whatever must happen stands there with its time; of the rest only a delay that did not hold may."""
        rows = self.desk.redis.zrange(self.desk.keys.due(self.desk.keys.shard(address)), 0, -1, withscores=True)
        due = dict(rows)
        for mail in living:
            found = {kind: due.get(f"{kind}\t{address}\t{mail.entry}") for kind in ("hold", "park", "bury", "ttl")}
            if mail.state in ("available", "held"):
                del found["park"]
            assert {kind: at_ms for kind, at_ms in found.items() if at_ms is not None} == self.model.due(mail)

    def check_ids(self) -> None:
        known: dict[str, str] = {}
        for shard in range(self.desk.keys.shards):
            known |= self.desk.redis.hgetall(self.desk.keys.ids(shard))
        keys = {mail: (*mail.to.split("/"), mail.sender.partition("/")[2], mail.id) for mail in self.model.mails}
        assert known == {"\t".join(keys[mail]): mail.entry for mail in self.model.mails if mail.alive}

    # -- the end

    def the_books_balance(self) -> None:
        events = self.desk.events()
        accepted = [(event.to, event.entry) for event in events if event.kind == "accepted"]
        ends = [(event.to, event.entry) for event in events if event.kind in FINAL]
        kinds = Counter(event.kind for event in events if event.kind in FINAL)
        waiting = sum(self.desk.depth(to, priority) for to in RECIPIENTS for priority in PRIORITIES)

        assert len(accepted) == len(set(accepted))
        assert len(ends) == len(set(ends)), "two ends"
        assert set(ends) <= set(accepted)
        assert len(accepted) == len(ends) + waiting
        assert kinds == Counter(mail.state for mail in self.model.mails if not mail.alive)
        assert waiting == sum(mail.alive for mail in self.model.mails)
        for address in RECIPIENTS:
            assert self.desk.redis.xlen(self.desk.keys.dead(address)) == self.model.dead_letters[address]
        self.first_deliveries_are_in_order()

    def first_deliveries_are_in_order(self) -> None:
        first = {place: n for n, place in reversed(list(enumerate(self.taken)))}
        for address in RECIPIENTS:
            for priority in PRIORITIES:
                lane = [mail for mail in self.model.mails if (mail.to, mail.priority) == (address, priority)]
                prompt = [mail for mail in lane if mail.handle in first and not mail.not_before]
                assert sorted(prompt, key=lambda mail: first[mail.handle]) == sorted(
                    prompt, key=lambda mail: mail.place
                )

    async def nothing_is_stuck(self) -> None:
        """When every session has left and every delay is over, a new one gets all that is left."""
        for session in self.sessions:
            if session.here or any(mail.holder is session for mail in self.model.mails):
                await self.gone(session)
        for _ in range(MAX_MESSAGES // DEAD_MAX):
            for address in RECIPIENTS:
                self.desk.redis.delete(self.desk.keys.dead(address))
            self.model.dead_letters.clear()
            self.clock.advance(700)
            await self.a_worker_does_what_is_due(0)
        for address in RECIPIENTS:
            for _ in range(MAX_MESSAGES + 1):
                await self.joins(1, address, 0, "exclusive", 0, True)
                session = self.sessions[-1]
                rows = await session.desk.take(session.puller, 100)
                given = self.model.take(session, 100, self.now_ms)
                assert {row.entry for row in rows} == {mail.entry for mail in given}
                await session.desk.ack(session.puller, *(row.entry for row in rows))
                for mail in given:
                    self.model.end(mail, "acked", self.now_ms)
        assert [mail for mail in self.model.mails if mail.alive] == []

    async def every_sender_was_told_once(self) -> None:
        told: Counter[tuple[str, str, str]] = Counter()
        for desk in self.desks:
            await desk.store.pipeline.finish()
        for sender in SENDERS:
            for receipt in await self.desk.receipts(sender):
                told[sender, receipt["id"], receipt["state"]] += 1
        assert told == self.model.receipts
        for shard in range(self.desk.keys.shards):
            assert self.desk.redis.xlen(self.desk.keys.outbox(shard)) == 0


# The steps of a history: how often each comes, and what it is given.
STEPS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    "sends": (
        5,
        {
            "desk": a_desk,
            "sender": st.sampled_from(SENDERS),
            "to": a_recipient,
            "ids": st.lists(st.sampled_from(IDS), min_size=1, max_size=4),
            "priority": st.sampled_from((0, 0, 0, *PRIORITIES)),
            "size": st.sampled_from((2, 2, 2, 100, 500)),
            "ttl_s": st.sampled_from((None, None, None, 20, 100)),
            "delay_s": st.sampled_from((0, 0, 0, 5, 30)),
            "max_attempts": st.sampled_from((0, 0, 1, 2)),
            "ack_timeout_s": st.sampled_from((None, None, 10)),
            "receipt": st.sampled_from((True, "all", False)),
            "push_is_lost": one_in_four,
        },
    ),
    "takes_all_and_gets_more": (
        4,
        {
            "desk": a_desk,
            "sender": st.sampled_from(SENDERS),
            "to": a_recipient,
            "at": a_place,
            "ids": st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True),
            "push_is_lost": one_in_four,
        },
    ),
    "cancels": (1, {"at": a_place}),
    "joins": (
        2,
        {
            "desk": a_desk,
            "address": a_recipient,
            "instance": a_place,
            "mode": st.sampled_from(("exclusive", "shared", "shared")),
            "ack_timeout_s": st.sampled_from((0, 0, 15)),
            "drained": st.sampled_from((True, True, False)),
        },
    ),
    "leaves": (1, {"at": a_place}),
    "an_instance_crashes": (1, {"at": a_place}),
    "instances_renew": (1, {}),
    "takes": (
        8,
        {
            "address": a_recipient,
            "at": a_place,
            "room": st.sampled_from((0, 1, 2, 3, 4, 9)),
            "answer_is_lost": one_in_four,
            "looks_again": one_in_four,
            "gives_credits": st.booleans(),
        },
    ),
    "acks": (3, {"at": a_place, "mails": some_places, "are_kept": st.booleans()}),
    "nacks": (
        4,
        {
            "at": a_place,
            "mails": some_places,
            "retry": st.sampled_from((True, True, True, False)),
            "delay_s": st.sampled_from((None, 0, 0, 3, 40)),
        },
    ),
    "releases": (1, {"at": a_place, "mails": some_places}),
    "touches": (2, {"at": a_place, "mails": some_places, "extend_s": st.sampled_from((1, 20, 200))}),
    "time_passes": (4, {"seconds": st.sampled_from((0.5, 1, 3, 5, 10, 15, 20, 60, 700))}),
    "a_worker_does_what_is_due": (2, {"desk": a_desk}),
    "a_worker_looks": (1, {"desk": a_desk}),
    "a_worker_does_what_it_saw": (1, {"desk": a_desk}),
    "a_sweeper_comes": (1, {"address": a_recipient}),
    "a_worker_ends_sessions_of_dead_instances": (1, {}),
}


def a_step() -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    names = [name for name, (often, _) in STEPS.items() for _ in range(often)]
    return st.sampled_from(names).flatmap(lambda name: st.tuples(st.just(name), st.fixed_dictionaries(STEPS[name][1])))


@asynccontextmanager
async def a_history(server: RealServer) -> AsyncIterator[History]:
    clock = HandClock()
    limits = {
        "shards": 2,
        "mailbox_max_messages": MAX_MESSAGES,
        "mailbox_max_bytes": MAX_BYTES,
        "dead_max_messages": DEAD_MAX,
        "message_ttl_s": TTL_MS // 1_000,
        "dedup_window_s": WINDOW_MS // 1_000,
    }
    async with (
        open_desk(server, clock=clock, **limits) as one,
        open_desk(server, one.keys.prefix, clock, **limits) as other,
    ):
        yield History((one, other), clock)


async def play(server: RealServer, steps: list[tuple[str, dict[str, Any]]]) -> History:
    async with a_history(server) as history:
        await history.instances_renew()
        await history.joins(0, RECIPIENTS[0], 0, "exclusive", 0, True)
        for name, values in steps:
            await getattr(history, name)(**values)
            history.the_store_is_as_the_model_says()
        history.the_books_balance()
        await history.nothing_is_stuck()
        history.the_books_balance()
        await history.every_sender_was_told_once()
    return history
