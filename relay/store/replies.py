"""Replies to requests: into the outbox with the ack, and on into the requester's mailbox."""

from collections.abc import Callable

from msgspec import Raw

from relay.protocol import Message, parse_entry
from relay.store.batches import Call, Line, Outcome
from relay.store.calls import Calls
from relay.store.keys import ALL_LANES
from relay.store.mailboxes import Draft, Mailboxes
from relay.store.receipts import Receipts
from relay.store.scripts import script
from relay.store.tasks import Tasks

TASK_ONLY = "2"  # the request came over HTTP: its reply is kept with the task and nowhere else
ARRIVED = (b"stored", b"duplicate", b"blocked", b"unknown")


class Replies:
    """A reply is stored in the same step as the ack of its request; forwarding it twice stores it once."""

    def __init__(self, line: Line, calls: Calls, mailboxes: Mailboxes, receipts: Receipts, tasks: Tasks) -> None:
        self._line = line
        self._calls = calls
        self._mailboxes = mailboxes
        self._receipts = receipts
        self._tasks = tasks
        receipts.on_reply = self._forward

    def reply(
        self,
        address: str,
        holder: str,
        began: str,
        entry: str,
        payload: bytes,
        more: bool,
        answer: Callable[[str], None],
        attempt: int = 0,
    ) -> None:
        """Answers a request that `holder` holds. `answer` gets the outcome as reply.lua words it, or "unavailable"."""
        parsed = parse_entry(entry)
        if parsed is None:
            answer("not_found")
            return
        stream_id, priority = parsed
        shard = self._calls.keys.shard(address)
        lane = ALL_LANES.index(str(priority)) + 1

        def done(call: Call, outcome: Outcome) -> None:
            if isinstance(outcome, Exception):
                answer("unavailable")
                return
            outbox_entry, fields, word = outcome
            self._receipts.forward(shard, outbox_entry, fields)
            # What is not found the second time was answered by the first, whose reply was lost.
            answer("replied" if call.retried and word == b"not_found" else word.decode())

        packet = self._calls.packet(
            script("reply"),
            shard,
            [address, ALL_LANES, holder, began, lane, stream_id, attempt, more, payload.decode()],
            more_keys=len(ALL_LANES),
            more_chunk=self._calls.keys.box_chunk(address, ALL_LANES),
        )
        # A part that is said twice would be there twice; the last answer acks, so that it cannot be.
        self._line.submit(Call(packet, done, may_repeat=not more))

    def _forward(self, origin: str, reply: bytes, arrived: Callable[[bool], None]) -> None:
        requester, replier, request_id, expires_at, what, where, payload = reply.decode().split("\t", 6)
        left_s = (int(expires_at) - self._calls.clock.now_ms()) / 1_000
        if left_s <= 0:
            arrived(True)
            return
        field = "end" if what == "end" else f"part:{origin}"

        def kept(well: bool) -> None:
            if well and where != TASK_ONLY:
                self._send_on(origin, requester, replier, request_id, payload, left_s, what == "part", arrived)
            else:
                arrived(well)

        self._tasks.answer(requester, request_id, replier, field, payload, int(expires_at), kept)

    def _send_on(
        self,
        origin: str,
        requester: str,
        replier: str,
        request_id: str,
        payload: str,
        left_s: float,
        is_part: bool,
        arrived: Callable[[bool], None],
    ) -> None:
        """Into the requester's mailbox, like any message. What does not fit there now stays for the worker."""
        message = Message(
            id=f"reply:{origin}",
            to=requester,
            payload=Raw(payload.encode()),
            reply_to=request_id,
            ttl_s=left_s,
            receipt=False,
        )

        def answered(_: Draft, outcome: Outcome) -> None:
            arrived(outcome[0] in ARRIVED)

        self._mailboxes.accept(self._mailboxes.draft(replier, message, answered, is_part=is_part))
