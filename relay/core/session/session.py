"""A session: handles the frames of one authenticated agent, from the first delivery to the last ack."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, assert_never

from relay.auth import Identity
from relay.core.instance.sockets import Socket
from relay.core.instance.topics import Topics
from relay.core.lifecycle import note_taken
from relay.core.output_budget import Output
from relay.core.session.agent_link import AgentLink
from relay.core.session.answer_buffer import AnswerBuffer
from relay.core.session.control_frames import ControlFrames
from relay.core.session.deliver_frame import deliver_frame
from relay.core.session.delivery import DeliveryPump
from relay.core.session.receipts import ReceiptReader
from relay.core.session.send_queue import SendQueue
from relay.core.session.settling import SessionSettling
from relay.core.session.spending import Spending
from relay.errors import RelayError, Unauthorized
from relay.protocol.frames import (
    Ack,
    AnyFrame,
    Auth,
    Block,
    Nack,
    Ping,
    Presence,
    Publish,
    ReceiptsAck,
    Release,
    Reply,
    Send,
    Subscribe,
    Sync,
    Touch,
    Unblock,
    Unsubscribe,
    frame,
    parse,
)
from relay.store.agents.presence import Joined
from relay.store.mailbox.take import TakeAnswer, TakeRequest, TakeResult
from relay.store.record.taken import Taken
from relay.store.store import Store
from relay.store.wakes import PushedReceipts
from relay.telemetry.metrics import Metrics

SHARED_ACK_TIMEOUT_S = 30.0
FINISH_WITHIN_S = 5.0  # a store that is away keeps no session from its end


class Session:
    """One agent on one socket. It hands each frame to the part that handles it.

    Guarantees: deliveries go out as DeliveryPump promises; every message sent is answered once; only the client's
    settlement removes a message that it holds. Nothing here blocks on a client or on the store: the store calls back.
    """

    # 10,000 idle sessions are the normal case, so each is kept small.
    __slots__ = (
        *("_controls", "_link", "_metrics", "_sends", "_serves_as", "_settling", "_socket", "_store"),
        *("ack_timeout_ms", "address", "asked_ms", "epoch", "joined", "mode", "name", "next_active_at_ms"),
        *("answers", "pass_on", "pump", "receipts", "receives", "renew", "shard"),
    )

    def __init__(
        self,
        name: str,
        identity: Identity,
        auth: Auth,
        store: Store,
        output: Output,
        socket: Socket,
        topics: Topics,
        metrics: Metrics,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.name = name
        self.address = identity.address
        self.receives = "receive" in identity.scopes  # else it has no mailbox: it only sends
        self._serves_as = auth.mode or "exclusive"
        self.mode: str = self._serves_as if self.receives else "sender"
        self.shard = store.keys.shard(self.address)
        self.ack_timeout_ms = int(_ack_timeout_s(auth) * 1_000)
        self.next_active_at_ms = auth.next_active_at_ms if self.receives else None
        self.asked_ms = store.clock.now_ms()  # when its client asked to be served
        self.epoch = ""  # the epoch that its client was told
        self.joined = False  # whether the store knows it: a wake may come before that, for a predecessor
        # Tells another session of the agent that there may be mail.
        self.pass_on: Callable[[Session], None] = lambda _: None
        self.renew: Callable[[Auth], None] = _cannot_renew
        self._store = store
        self._metrics = metrics
        self._socket = socket
        link = self._link = AgentLink(identity, output, socket.write, metrics)
        spending = Spending(self.address, store.rates)
        self.pump = DeliveryPump(
            *(auth.window, output, metrics.wakes),
            is_shared=self._serves_as == "shared",
            take=self._take,
            deliver=self._deliver,
            drained=self._drained,
            give_back=self._give_back,
            pass_on=self._pass_on,
        )
        self.receipts = ReceiptReader(name, link, store.receipts, metrics, spending)
        self.answers = AnswerBuffer(socket.write, store.level)
        self._sends = SendQueue(name, link, store, metrics, self.answers, spending)
        self._settling = SessionSettling(
            *(link, name, self.ack_timeout_ms > 0, self.pump),
            *(store, metrics, self.answers, spending),
        )
        self._settling.may_hold = self.receives
        self._controls = ControlFrames(link, store, topics, spawn, self.answers, spending)

    @property
    def identity(self) -> Identity:
        return self._link.identity

    # -- its life

    def begin(self, joined: Joined) -> None:
        """The store knows it: say what waits in its mailbox, and start to push.

        A client that may only send sees an empty one, and disturbs nobody who serves the real one."""
        self.joined = True
        if self.receives:
            self.send(frame("queue_status", pending=joined.pending, bytes=joined.bytes, oldest_ms=joined.oldest_ms))
            self.pump.open(joined.pending, joined.backlog_end)
        else:
            self.send(frame("queue_status", pending=0, bytes=0, oldest_ms=None))
            self._drained(0)
        self.read_receipts()

    def renewed(self, identity: Identity) -> bool:
        """The scopes of a fresh token count from now on. Says whether the mailbox is to be joined anew."""
        self._link.identity = identity
        received, self.receives = self.receives, "receive" in identity.scopes
        self.mode = self._serves_as if self.receives else "sender"
        self._settling.may_hold = self.receives
        if self.receives and not received:
            self.joined = False  # until it serves the mailbox: a wake must not take from it before
        if received and not self.receives:
            self.pump.shut()
            self._controls.end()
        return self.receives != received

    async def end(self) -> None:
        """Nothing goes out any more. Returns when all is carried out that the client had said before."""
        self.pump.is_closing = True
        self.receipts.end()
        self._controls.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_WITHIN_S):
                await self.answers.wait_for_rest()

    def close(self, word: str, retry_after_ms: int | None = None) -> None:
        """Stops deliveries, tells the client why, lets it settle, and closes."""
        self.pump.is_closing = True
        self._socket.close(word, retry_after_ms)

    def is_idle(self) -> bool:
        """Nothing is unconfirmed and nothing unanswered."""
        return not self.pump.held and not self.answers.expected

    @property
    def is_stalled(self) -> bool:
        """Whether something waits here until the client has read what it was sent."""
        return self.pump.is_stalled or self.receipts.is_stalled

    def resume(self) -> None:
        """The client has read what it was sent: what had to wait for that goes on."""
        self.pump.run()
        self.receipts.resume()

    def read_receipts(self) -> None:
        """There may be receipts, which are not sent before the client knows of its mailbox."""
        if self.joined:
            self.receipts.read()

    def push_receipts(self, receipts: PushedReceipts) -> bool:
        """Receipts that were pushed by the ack. False if they must wait in the store."""
        return self.joined and not self.pump.is_closing and self.receipts.push(receipts)

    # -- frames in

    def receive(self, data: bytes) -> None:
        """One frame of the client. What is wrong with it is answered; the session goes on."""
        self.answers.received(len(data))
        try:
            self._handle(parse(data))
        except RelayError as error:
            self._link.send_error(error)

    def _handle(self, received: AnyFrame) -> None:
        match received:
            case Send(messages=messages):
                self._sends.send(messages)
            case Ack() | Nack() | Release() | Touch() | Reply():
                self._settling.handle(received)
            case ReceiptsAck(cursor=cursor):
                self.receipts.confirm(cursor)
            case Ping():
                self.send(frame("pong", server_time_ms=self._store.clock.now_ms()))
            case Publish():
                self._controls.publish(received)
            case Auth():
                self.renew(received)
            case Subscribe() | Unsubscribe() | Block() | Unblock() | Presence() | Sync():
                self._controls.handle(received)
            case _:
                assert_never(received)

    # -- what the pump asks for

    def _take(self) -> None:
        self._store.taking.take(self.address, self._take_request, self._taken)

    def _take_request(self) -> TakeRequest:
        """Made when the take goes out: what was confirmed meanwhile makes room."""
        pump, wish = self.pump, self.pump.wish()
        return TakeRequest(
            *(self.name, wish.most, pump.granted, self.ack_timeout_ms),
            backlog_end="" if pump.is_drained else pump.backlog_end,
            known=wish.known,
            credits_max=0 if self.ack_timeout_ms else wish.credits_max,
        )

    def _taken(self, answer: TakeAnswer) -> None:
        """When the store does not know this session any more, the instance finds out why, and joins again or closes."""
        self.pump.taken(answer if isinstance(answer, TakeResult) else None)

    def _deliver(self, rows: list[Taken]) -> None:
        now_ms = self._store.clock.now_ms()
        for row in rows:
            row.taken_at_ms = now_ms
        note_taken(self._metrics, self.address, rows, now_ms)
        self.send(deliver_frame(rows, self.pump.backlog_end))

    def _drained(self, delivered: int) -> None:
        self.send(frame("drained", delivered=delivered))

    def _give_back(self, rows: list[Taken]) -> None:
        self._settling.give_back([row.entry for row in rows])

    def _pass_on(self) -> None:
        self.pass_on(self)

    # -- frames out

    def send(self, text: bytes) -> None:
        self._link.send(text)


def _cannot_renew(_: Auth) -> None:
    raise Unauthorized("the session is authenticated already")


def _ack_timeout_s(auth: Auth) -> float:
    if auth.ack_timeout_s is not None:
        return auth.ack_timeout_s
    return SHARED_ACK_TIMEOUT_S if auth.mode == "shared" else 0.0
