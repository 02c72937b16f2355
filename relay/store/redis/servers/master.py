"""The connection to one master: all waiting commands go out together, one exchange at a time."""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from redis.exceptions import RedisError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from relay.errors import NotReplicated, StoreRefused, StoreUnavailable
from relay.store.redis.command import Command, Outcome
from relay.store.redis.pace import Pace
from relay.store.redis.resp import encode_command
from relay.store.redis.scripts import Script
from relay.store.redis.servers.connect import Server
from relay.store.redis.servers.link import Ask, Link
from relay.store.redis.servers.wire import Reply

log = logging.getLogger(__name__)

PING_EVERY_S = 3.0  # an idle server is asked for a sign of life, so that a dead connection is noticed
GIVE_UP_AFTER_S = 5.0  # and after this the callers are told store_unavailable
GIVE_UP_WHEN_DOWN_S = 1.0  # sooner when the commands before had to be given up too
REPLICATE_WITHIN_MS = 1_000
REPLICATE_WHEN_SHORT_MS = 100  # sooner told when the exchange before did not reach the replicas either
PATIENCE_S = 0.2  # what nobody waits for goes out by itself after this


class Unanswered(Exception):
    """The connection was lost with commands under way: each may or may not have been executed."""


class NotNow(Exception):
    """The server is loading, failing over or read-only: nothing was executed."""


_PING = encode_command("PING")
_ASKING = encode_command("ASKING")
_ROLE = encode_command("ROLE")
_NOT_NOW = ("NOSCRIPT", "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "BUSY")
_NOT_HERE = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN")  # the master of a Cluster turns the command away untouched


class Switchboard(Protocol):
    """What a master needs from the object that knows all masters."""

    def gather(self, master: "Master") -> list[Command]:
        """What waits for this master, as the commands of its next exchange."""

    def keep_own(self, master: "Master", commands: list[Command]) -> list[Command]:
        """The commands to repeat that are still for this master. The rest is passed on."""

    def turned_away(self, master: "Master", command: Command, why: str) -> None:
        """A command that this master does not carry out: its keys are elsewhere, or on their way."""

    def landed(self, command: Command) -> None:
        """A command that was astray has its answer."""

    def refusal(self, command: Command) -> StoreUnavailable:
        """The error for the caller of a command that was given up."""

    def answered(self, after_s: float) -> None:
        """An exchange has ended after this time."""

    def shards_of(self, master: "Master") -> Iterable[int]:
        """The shards that it has."""

    async def compare(self, shards: Iterable[int], ask: Ask) -> bool:
        """Looks whether a server has what was promised of these shards. Raises OSError or RedisError."""


class Master:
    """One connection on which waiting commands go out together and answers come back in order.

    A command is never cancelled: its caller may go away, but the exchange runs to its end. When the connection is lost,
    commands that may be repeated are sent again on a new one until GIVE_UP_AFTER_S; others fail at once.
    """

    def __init__(self, server: Server, switchboard: Switchboard, scripts: Sequence[Script], replicate: bool) -> None:
        self.name = str(server)
        self._server = server
        self.healthy = True  # whether the last exchange went through
        self.waiting: list[Command] = []  # commands that are not gathered with others like them
        self.adopted: list[Command] = []  # commands that another master turned away or could not carry out
        self.under_way: list[Command] = []  # commands of the exchange under way that have no answer yet
        self.doubted: set[int] = set()  # shards that may have gone back in time
        self._switchboard = switchboard
        self._link = Link(server, scripts)
        self._replicate = replicate  # whether commands that must last wait for the replicas
        self._is_short = False  # whether the last of those did not reach them
        self._is_down = False  # whether the Cluster said in the last exchange that it is down
        self._answered_at = time.monotonic()
        self._has_written = False  # whether the exchange under way may have reached the server
        self._pace = Pace()
        self._rung = asyncio.Event()
        self._nudged = asyncio.Event()  # whether the next attempt should not be waited for
        self._later: asyncio.TimerHandle | None = None  # when what is patient goes out by itself
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_retired = False

    def connected_s(self) -> float:
        """For how long the server has been within reach, on one connection."""
        return self._link.connected_s()

    def silent_s(self) -> float:
        """For how long the server has not answered anything, although it was asked."""
        return time.monotonic() - self._answered_at

    def replicas_asked(self) -> int:
        """How many replicas must have what is promised: all that a failover may choose from, and one in any case."""
        return max(1, self._server.replicas)

    def submit(self, command: Command, is_patient: bool = False) -> None:
        """One command that is not gathered with others like it, but travels with them."""
        self.waiting.append(command)
        if is_patient:
            self.ring_later()
        else:
            self.ring()

    def ring(self) -> None:
        self._rung.set()

    def ring_later(self) -> None:
        """For what nobody waits for: every exchange costs the server a write to disk, so it joins the next one."""
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(PATIENCE_S, self.ring)

    def nudge(self) -> None:
        """Looks at once at what could not be carried out: it may belong to another master by now."""
        self._nudged.set()

    def adopt(self, commands: list[Command]) -> None:
        """Takes commands that were astray, in their own exchange."""
        self.adopted += commands
        self.ring()

    def retire(self) -> None:
        """Ends when what is under way has been answered or passed on."""
        self._is_retired = True
        self.nudge()
        self.ring()

    def abort(self) -> None:
        """Waits no longer for the server. What is under way is treated as after a lost connection."""
        self._link.abort("the server is no master any more")
        self.nudge()

    async def finish(self) -> None:
        """Returns when everything submitted so far has been carried out, and what came of it."""
        while self._later is not None or self._rung.is_set() or not self._idle.is_set():
            if self._later is not None:
                self.ring()
            self._idle.clear()
            await self._idle.wait()

    async def run(self) -> None:
        """Carries out what is submitted, until it is retired."""
        pinging = asyncio.create_task(self._ping_when_idle())
        try:
            while not self._is_retired or self._rung.is_set():
                await self._rung.wait()
                if wait_s := self._pace.wait_s():
                    await asyncio.sleep(wait_s)
                self._pace.began()
                self._rung.clear()
                if self._later is not None:
                    self._later.cancel()
                    self._later = None
                await self._next_exchange()
        finally:
            pinging.cancel()
            await self._link.close()

    async def _next_exchange(self) -> None:
        commands, self.adopted = self.adopted, []
        deadline = None
        if commands:
            deadline = min(command.deadline for command in commands)
            self._rung.set()  # what else is waiting comes next
        else:
            commands = self._switchboard.gather(self)
        if commands:
            self._idle.clear()
            self.under_way = commands
            await self._carry_out(commands, deadline)
            self.under_way = []
        self._idle.set()

    async def _ping_when_idle(self) -> None:
        while True:
            await asyncio.sleep(PING_EVERY_S)
            if self._idle.is_set() and self.silent_s() >= PING_EVERY_S / 2:
                self.submit(Command(_PING, lambda *_: None))

    async def _carry_out(self, commands: list[Command], deadline: float | None) -> None:
        """Every command gets its answer, in GIVE_UP_AFTER_S or a little later that the store is away."""
        began = time.monotonic()
        try:
            await self._try(commands)  # nearly always enough, and retrying is not free to prepare
        except (Unanswered, NotNow) as error:
            patience_s = GIVE_UP_AFTER_S if self.healthy else GIVE_UP_WHEN_DOWN_S
            left_s = (deadline or began + patience_s) - time.monotonic()
            if left_s > 0:
                await self._carry_out_again(commands, left_s)
            else:
                self._give_up(commands, error)

    async def _carry_out_again(self, commands: list[Command], left_s: float) -> None:
        attempts = AsyncRetrying(
            retry=retry_if_exception_type((Unanswered, NotNow)),
            stop=stop_after_delay(left_s),
            wait=wait_random_exponential(multiplier=0.05, max=0.5),
            sleep=self._pause,
            reraise=True,
        )
        ends_at = time.monotonic() + left_s
        try:
            async for attempt in attempts:
                with attempt:
                    commands[:] = self._keep_own(commands, ends_at)
                    if commands:
                        await self._try(commands)
        except (Unanswered, NotNow) as error:
            self._give_up(commands, error)

    def _keep_own(self, commands: list[Command], ends_at: float) -> list[Command]:
        for command in commands:
            command.deadline = command.deadline or ends_at
        return self._switchboard.keep_own(self, commands)

    async def _pause(self, seconds: float) -> None:
        self._nudged.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudged.wait()

    def _give_up(self, commands: list[Command], error: Exception) -> None:
        self.healthy = False
        log.warning("store_unavailable", extra={"calls": len(commands), "error": str(error)})
        for command in commands:
            self._hand_out(command, self._switchboard.refusal(command))

    async def _try(self, commands: list[Command]) -> None:
        """Sends the commands and settles what was answered. Keeps in `commands` what must be sent again, and raises."""
        try:
            replies = await self._exchange(commands)
        except (OSError, RedisError) as error:
            await self._link.close()
            if self._has_written:
                self._prepare_to_repeat(commands)
            if not commands:
                return  # they have all been told
            raise Unanswered(str(error) or type(error).__name__) from error
        self._is_down = False
        again = self._settle(commands, replies)
        commands[:] = again
        self.healthy = not again and not self._is_down
        if again:
            await self._link.close()  # the next one loads the scripts, which may be what was missing
            raise NotNow("the scripts are not there, or the server is not ready")

    def _settle(self, commands: list[Command], replies: list[Outcome]) -> list[Command]:
        """Hands out the replies; returns the commands that the server turned away untouched."""
        again = []
        for command, outcome in zip(commands, replies, strict=True):
            if isinstance(outcome, Exception):
                why = str(outcome)
                if why.startswith(_NOT_NOW):
                    again.append(command)
                    continue
                if why.startswith(_NOT_HERE):
                    self._is_down = self._is_down or why.startswith("CLUSTERDOWN")
                    self._switchboard.turned_away(self, command, why)
                    continue
                outcome = _as_unavailable(why)
            elif self._is_short and command.needs_replicas:
                outcome = NotReplicated(outcome)
            self._hand_out(command, outcome)
        return again

    def _hand_out(self, command: Command, outcome: Outcome) -> None:
        command.hand_out(outcome)
        if command.is_astray:
            self._switchboard.landed(command)

    def _prepare_to_repeat(self, commands: list[Command]) -> None:
        """These may have been carried out. What must not happen twice is told so, and is not repeated."""
        once = [command for command in commands if not command.may_repeat]
        commands[:] = [command for command in commands if command.may_repeat]
        for command in commands:
            command.encode_again()
        for command in once:
            self._hand_out(command, StoreUnavailable("the store did not answer"))

    async def _exchange(self, commands: list[Command]) -> list[Reply]:
        """Sends the commands together. Raises OSError or RedisError when not all replies came in time."""
        self._has_written = False
        if not self._link.is_open:
            await self._link.open()
            self.doubted.update(self._switchboard.shards_of(self))
        if self.doubted:
            is_as_known = await self._switchboard.compare(self.doubted, self._link.exchange)
            self.doubted = set()
            if not is_as_known:
                for command in commands:
                    command.encode_again()  # what was known when it was made is so no longer
        packets = [command.packet for command in commands]
        asking = [index for index, command in enumerate(commands) if command.asking]
        for index in reversed(asking):
            packets.insert(index, _ASKING)
        asked = self.replicas_asked() if self._replicate and any(command.needs_replicas for command in commands) else 0
        if asked:
            within_ms = REPLICATE_WHEN_SHORT_MS if self._is_short else REPLICATE_WITHIN_MS
            packets += (_ROLE, encode_command("WAIT", asked, within_ms))
        began = time.monotonic()
        self._has_written = True
        replies = await self._link.exchange(packets)
        self._answered_at = time.monotonic()
        self._switchboard.answered(self._answered_at - began)
        if asked:
            reached = replies.pop()
            self._server.note_role(replies.pop())
            self._check_replicas(reached, asked)
        for index in asking:  # the index fits once the answers to the ASKINGs before it are gone
            del replies[index]
        return replies

    def _check_replicas(self, reached: Reply, asked: int) -> None:
        """Notes whether too few replicas confirmed; there may be new ones by now."""
        was_short, asked = self._is_short, max(asked, self.replicas_asked())
        self._is_short = not isinstance(reached, int) or reached < asked
        if self._is_short and not was_short:
            log.warning("not_replicated", extra={"reached": str(reached), "asked": asked})


def _as_unavailable(why: str) -> StoreUnavailable:
    if "OOM" in why[:80]:
        return StoreUnavailable("the store is out of memory")
    log.error("store_refused_a_call", extra={"error": why[:500]})
    return StoreRefused("the store refused the command")
