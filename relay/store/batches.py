"""What is waiting goes out together: calls gathered by shard, one exchange at a time on one connection."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec
from redis.asyncio import ConnectionPool
from redis.exceptions import RedisError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from relay.errors import StoreRefused, StoreUnavailable
from relay.store.keys import SHARD_KEYS, as_packet, bulk
from relay.store.scripts import Script, script
from relay.store.wire import Reply, Wire

log = logging.getLogger(__name__)

REACH_TIMEOUT_S = 2.0  # a server that a new connection does not reach by then is treated as gone
EXCHANGE_TIMEOUT_S = 3.0  # and so is one that has not answered by then
GIVE_UP_AFTER_S = 5.0  # and after this the callers are told store_unavailable
GIVE_UP_WHEN_DOWN_S = 1.0  # sooner when the calls before had to be given up too
WAIT_FOR_REPLICA_MS = 1_000
PATIENCE_S = 0.2  # what nobody waits for goes out by itself after this
MOST_PER_EXCHANGE = 2_000  # and of one kind in one exchange, which must be answered in time
MOST_PER_CALL = 500  # messages in one script call: a few milliseconds of the server's time

Item = TypeVar("Item")
Outcome = Any  # the reply, or the exception in its place


class Unanswered(Exception):
    """The connection was lost with calls under way: each of them may or may not have been carried out."""


class NotNow(Exception):
    """The server is there but is loading, failing over or read-only: nothing was carried out."""


_NOT_NOW = ("NOSCRIPT", "LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "BUSY")


class Call:
    """One command on its way. `done` gets the reply, or StoreUnavailable."""

    __slots__ = ("anew", "done", "may_repeat", "packet", "retried")

    def __init__(
        self,
        packet: bytes,
        done: Callable[["Call", Outcome], None],
        may_repeat: bool = True,
        anew: Callable[[], bytes] | None = None,
    ) -> None:
        self.packet = packet
        self.anew = anew  # makes the packet again: a later time may mean other keys
        self.done = done
        self.may_repeat = may_repeat  # whether carrying it out twice is the same as once
        self.retried = False  # whether an earlier sending may have been carried out


class Gatherer(Generic[Item]):
    """What waits for one script, by shard; each shard's items become one call, or several when they weigh too much.

    `weigh` says how many messages an item is about; a call is about `most` of them, or one item that has more.
    """

    def __init__(
        self,
        line: "Line",
        encode: Callable[[int, list[Item]], bytes],
        deliver: Callable[[list[Item], Outcome, bool], None],
        most: int = MOST_PER_CALL,
        may_repeat: bool = True,
        weigh: Callable[[Item], int] = lambda _: 1,
        is_patient: bool = False,
    ) -> None:
        self._is_patient = is_patient  # nobody waits for it: it travels with whatever goes out next
        self._line = line
        self._weigh = weigh
        self._encode = encode
        self._deliver = deliver
        self._most = most
        self._may_repeat = may_repeat
        self._waiting: dict[int, list[Item]] = {}
        line.gatherers.append(self)

    def put(self, shard: int, item: Item) -> None:
        items = self._waiting.get(shard)
        if items is None:
            self._waiting[shard] = [item]
            if self._is_patient:
                self._line.ring_later()
            else:
                self._line.ring()
        else:
            items.append(item)

    def put_back(self, shard: int, items: list[Item]) -> None:
        """Items that must be called for again, before whatever came in meanwhile."""
        self._waiting[shard] = items + self._waiting.get(shard, [])
        self._line.ring()

    def calls(self) -> Iterable[Call]:
        """Takes what is waiting, in calls. What is too much for one call or one exchange stays for the next one."""
        waiting, self._waiting = self._waiting, {}
        total, left = 0, {}
        for shard, items in waiting.items():
            if total >= MOST_PER_EXCHANGE:
                self._waiting[shard] = items
                continue
            fitting, weight = self._fitting(items)
            total += weight
            if fitting < len(items):
                left[shard] = items[fitting:]
                items = items[:fitting]
            try:
                yield self._call(shard, items)
            except Exception:
                # What cannot be put into a call must not take the line down, which everybody else uses too.
                log.exception("call_not_made")
                self._deliver(items, StoreUnavailable("the call could not be made"), False)
        self._waiting |= left  # shards that were not served this time come first in the next one
        if self._waiting:
            self._line.ring()

    def _fitting(self, items: list[Item]) -> tuple[int, int]:
        """How many of the items make one call, at least one, and what they weigh."""
        weight = 0
        for count, item in enumerate(items):
            more = self._weigh(item)
            if weight + more > self._most and count > 0:
                return count, weight
            weight += more
        return len(items), weight

    def _call(self, shard: int, items: list[Item]) -> Call:
        def done(call: Call, outcome: Outcome) -> None:
            self._deliver(items, outcome, call.retried)

        def encode() -> bytes:
            return self._encode(shard, items)

        return Call(encode(), done, self._may_repeat, encode)


class Line:
    """One connection on which what is waiting goes out together and comes back in order.

    A call is never cancelled half-way: its caller may go away, the exchange goes on to its end. When the connection is
    lost, calls that may be repeated are sent again on a new one until GIVE_UP_AFTER_S; the others are told at once.
    """

    def __init__(self, pool: ConnectionPool, script_names: Iterable[str] = (), wait_for_replica: bool = False) -> None:
        self.gatherers: list[Gatherer[Any]] = []
        self.replicas_reached = 0  # how many replicas had the last exchange, with wait_for_replica
        self.batch_sizes: Callable[[float], None] = lambda _: None  # how many calls went out together
        self.exchange_s: Callable[[float], None] = lambda _: None  # how long each exchange took
        self.healthy = True  # whether the last exchange went through
        self._pool = pool
        self._scripts = [script(name) for name in script_names]
        self._wait_for_replica = wait_for_replica
        self._wire: Wire | None = None
        self._connected_at = 0.0
        self._has_written = False  # whether the exchange under way may have reached the server
        self._replies: list[Reply] = []  # of the exchange under way
        self._missing = 0  # and how many have not come yet
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._single: list[Call] = []
        self._rung = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None  # when what is patient goes out by itself
        self._idle = asyncio.Event()
        self._idle.set()

    def connected_s(self) -> float:
        """For how long the server has been within reach, on one connection."""
        return time.monotonic() - self._connected_at if self._wire is not None and self._wire.is_open else 0.0

    def ring(self) -> None:
        self._rung.set()

    def submit(self, call: Call) -> None:
        """One command that is not gathered with others like it, but travels with them."""
        self._single.append(call)
        self._rung.set()

    def submit_later(self, call: Call) -> None:
        """The same, of one that nobody waits for."""
        self._single.append(call)
        self.ring_later()

    async def command(self, *parts: str | bytes | int) -> Outcome:
        """A plain command and its reply. Raises StoreUnavailable. Cancelling the caller leaves the call alone."""
        return await self.reply(as_packet(*parts))

    async def reply(self, packet: bytes, may_repeat: bool = True) -> Outcome:
        """The reply to one call; see command()."""
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(_: Call, outcome: Outcome) -> None:
            if not answer.done():
                answer.set_result(outcome)

        self.submit(Call(packet, done, may_repeat))
        outcome = await answer
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def ring_later(self) -> None:
        """For what nobody waits for: every exchange costs the server a write to disk, so it joins the next one."""
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(PATIENCE_S, self.ring)

    async def finish(self) -> None:
        """Returns when everything submitted so far has been carried out, and what came of it."""
        while self._later is not None or self._rung.is_set() or not self._idle.is_set():
            if self._later is not None:
                self.ring()
            self._idle.clear()
            await self._idle.wait()

    async def run(self) -> None:
        """Carries out what is submitted, for ever."""
        try:
            while True:
                await self._rung.wait()
                self._rung.clear()
                if self._later is not None:
                    self._later.cancel()
                    self._later = None
                calls, self._single = self._single, []
                for gatherer in self.gatherers:
                    calls.extend(gatherer.calls())
                if calls:
                    self.batch_sizes(len(calls))
                    self._idle.clear()
                    await self._carry_out(calls)
                self._idle.set()
        finally:
            await self._drop_connection()

    async def _carry_out(self, calls: list[Call]) -> None:
        """Every call gets its answer, in GIVE_UP_AFTER_S or a little later that the store is away."""
        began = time.monotonic()
        try:
            await self._try(calls)  # nearly always enough, and retrying is not free to prepare
        except (Unanswered, NotNow) as error:
            patience_s = GIVE_UP_AFTER_S if self.healthy else GIVE_UP_WHEN_DOWN_S
            left_s = began + patience_s - time.monotonic()
            if left_s > 0:
                await self._carry_out_again(calls, left_s)
            else:
                self._give_up(calls, error)

    async def _carry_out_again(self, calls: list[Call], left_s: float) -> None:
        attempts = AsyncRetrying(
            retry=retry_if_exception_type((Unanswered, NotNow)),
            stop=stop_after_delay(left_s),
            wait=wait_random_exponential(multiplier=0.05, max=0.5),
            reraise=True,
        )
        try:
            async for attempt in attempts:
                with attempt:
                    await self._try(calls)
        except (Unanswered, NotNow) as error:
            self._give_up(calls, error)

    def _give_up(self, calls: list[Call], error: Exception) -> None:
        self.healthy = False
        log.warning("store_unavailable", extra={"calls": len(calls), "error": str(error)})
        for call in calls:
            _hand_out(call, StoreUnavailable("the store does not answer; the same id again is safe"))

    async def _try(self, calls: list[Call]) -> None:
        """Sends the calls and settles what was answered. Narrows `calls` and raises when some must be sent again."""
        try:
            replies = await self._exchange([call.packet for call in calls])
        except (OSError, RedisError) as error:
            await self._drop_connection()
            if self._has_written:
                _prepare_to_repeat(calls)
            raise Unanswered(str(error) or type(error).__name__) from error
        self.healthy = True
        again = self._settle(calls, replies)
        calls[:] = again
        if again:
            await self._drop_connection()  # the next one loads the scripts, which may be what was missing
            raise NotNow("the scripts are not there, or the server is not ready")

    def _settle(self, calls: list[Call], replies: list[Outcome]) -> list[Call]:
        """Hands out the replies; returns the calls that the server turned away untouched."""
        again = []
        for call, outcome in zip(calls, replies, strict=True):
            if isinstance(outcome, Exception):
                if str(outcome).startswith(_NOT_NOW):
                    again.append(call)
                    continue
                outcome = self._as_unavailable(outcome)
            _hand_out(call, outcome)
        return again

    def _as_unavailable(self, error: Exception) -> StoreUnavailable:
        if "OOM" in str(error)[:80]:
            return StoreUnavailable("the store is out of memory")
        log.error("store_refused_a_call", extra={"error": str(error)[:500]})
        return StoreRefused("the store refused the call")

    async def _exchange(self, packets: list[bytes]) -> list[Reply]:
        """Sends the packets together. Raises OSError or RedisError when not all replies came in time."""
        self._has_written = False
        wire = self._wire
        if wire is None or not wire.is_open:
            wire = await self._connect()
        if self._wait_for_replica:
            packets = [*packets, as_packet("WAIT", 1, WAIT_FOR_REPLICA_MS)]
        began = time.monotonic()
        self._has_written = True
        replies = await self._ask(wire, packets, EXCHANGE_TIMEOUT_S)
        self.exchange_s(time.monotonic() - began)
        if self._wait_for_replica:
            reached = replies.pop()
            self.replicas_reached = reached if isinstance(reached, int) else 0
        return replies

    async def _ask(self, wire: Wire, packets: list[bytes], within_s: float) -> list[Reply]:
        loop = asyncio.get_running_loop()
        self._replies, self._missing = [], len(packets)
        self._answered = loop.create_future()
        timer = loop.call_later(within_s, self._fail, TimeoutError("the server did not answer in time"))
        try:
            wire.write(packets[0] if len(packets) == 1 else b"".join(packets))
            await self._answered
        finally:
            timer.cancel()
        return self._replies

    def _heard(self, reply: Reply) -> None:
        self._replies.append(reply)
        self._missing -= 1
        if self._missing == 0 and not self._answered.done():
            self._answered.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self._answered.done():
            self._answered.set_exception(error)

    async def _connect(self) -> Wire:
        await self._drop_connection()
        wire = self._wire = Wire(self._heard, self._fail)
        async with asyncio.timeout(REACH_TIMEOUT_S):
            await wire.open(self._pool)
        self._connected_at = time.monotonic()
        if self._scripts:
            await self._ask(wire, [as_packet("SCRIPT", "LOAD", one.text) for one in self._scripts], REACH_TIMEOUT_S)
        return wire

    async def _drop_connection(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()


def _prepare_to_repeat(calls: list[Call]) -> None:
    """These may have been carried out. What must not happen twice is told so, and is not repeated."""
    once = [call for call in calls if not call.may_repeat]
    calls[:] = [call for call in calls if call.may_repeat]
    for call in calls:
        call.retried = True
        if call.anew is not None:
            call.packet = call.anew()
    for call in once:
        _hand_out(call, StoreUnavailable("the store did not answer"))


def _hand_out(call: Call, outcome: Outcome) -> None:
    """A caller that fails on its answer must not take the line down, which everybody else uses too."""
    try:
        call.done(call, outcome)
    except Exception:
        log.exception("answer_failed")


_pack = msgspec.msgpack.Encoder().encode


def script_packet(one: Script, shard_chunk: bytes, more_keys: int, more_chunk: bytes, call: list[Any]) -> bytes:
    """EVALSHA as wire bytes: the shard's keys, further keys, and the call as one msgpack argument."""
    blob = _pack(call)
    return b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n%b%b%b%b" % (
        4 + SHARD_KEYS + more_keys,
        one.sha,
        bulk(b"%d" % (SHARD_KEYS + more_keys)),
        shard_chunk,
        more_chunk,
        bulk(blob),
    )
