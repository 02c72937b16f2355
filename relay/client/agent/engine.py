"""The engine of an agent: its parts, how they are connected, and how they start and stop."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any

from relay.client.agent.options import Options
from relay.client.connection.calls import Calls
from relay.client.connection.connection import Connection
from relay.client.connection.credentials import Credentials, claims
from relay.client.connection.frames import Accepted, Deliver, Epoch, Frame, Receipts, Refusals, TopicEvent, Welcome
from relay.client.connection.link import Relay
from relay.client.connection.questions import Questions, Topics
from relay.client.connection.states import Connecting, Ended, Live, ReplacedBy, State, StateFeed
from relay.client.errors import ClientError, Closed, NotAllowed, Unauthorized
from relay.client.inbox.gaps import Gaps
from relay.client.inbox.handlers import Handler
from relay.client.inbox.inbox import Inbox
from relay.client.inbox.routes import Order
from relay.client.journal import Journal, open_journal
from relay.client.keys.security import Guard
from relay.client.outbox.lookups import Lookups
from relay.client.outbox.outbox import Outbox
from relay.client.outbox.outgoing import Outgoing
from relay.client.outbox.requests import Requests

log = logging.getLogger(__name__)

CLOSE_WITHIN_S = 5.0
FRAME_TOO_LARGE = 1009
EPOCH = "INSERT OR REPLACE INTO relay_facts VALUES ('epoch', ?)"


class Engine:
    """One life of an agent, from the opening of its outbox to the close."""

    def __init__(self, relay: Relay, credentials: Credentials, options: Options, address: str | None) -> None:
        self.relay = relay
        self.options = options
        self._credentials = credentials
        self._address = address
        self._epoch: str | None = None
        self._mode: str | None = options.mode  # None: as the agent is registered, which is asked for when it matters
        self._tasks: set[asyncio.Task[None]] = set()
        self.states = StateFeed(Connecting(relay.urls[0], 1))
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over.add_done_callback(lambda over: over.cancelled() or over.exception())  # seen, also if nobody asks
        self.is_open = False
        self.connection = Connection(relay, credentials, self, {})
        self.calls = Calls(relay, credentials, self.connection)
        self.questions = Questions(self.connection)
        self.topics = Topics(self.connection, self.questions)

    async def open(self, handlers: Iterable[tuple[Handler, str, int, Order]] = ()) -> None:
        """Opens the outbox and starts to connect; it does not wait for the relay."""
        self.journal: Journal = await open_journal(self.options.outbox, self.fail)
        try:
            await self._learn_address()
            await self._assemble()
            for handler in handlers:
                self.check_receives()
                self.inbox.handle(*handler)
        except BaseException:
            await self.journal.close()
            raise
        self.is_open = True
        self.spawn(self.connection.run())

    async def _assemble(self) -> None:
        options, clock = self.options, self.relay.clock
        self.guard = Guard(options.security, self.journal, self._registered, lambda: self.address)
        self.outbox = Outbox(self.journal, clock, self.connection, options.outbox_limit, options.waits_when_full)
        self.outbox.cancel_at_relay = self.calls.cancel
        self._lookups = Lookups(self.calls, self.outbox.end, self.spawn)
        if self._credentials.token is not None:  # keys open only sessions
            self.outbox.answers.look_up = self._lookups.add
        self.inbox = Inbox(self.journal, clock, self.connection, self.guard, self.spawn)
        if options.on_gap is not None and options.mode != "shared":  # the rest is with the others
            self.inbox.gaps = Gaps(options.on_gap)
        self.inbox.holds.has_own_mailbox = options.mode == "exclusive"
        self.inbox.learn_mode = self._learn_mode if options.mode is None else None
        self.requests = Requests(self.outbox, self.calls, self.guard, clock)
        self.inbox.take_reply = self.requests.take_reply
        self.outgoing = Outgoing(self.outbox, self.requests, self.guard, clock, self._has_own_mailbox)
        await self._take_up()

    async def _learn_address(self) -> None:
        """From the token, so that it is known while the relay is away."""
        with suppress(OSError):
            token = await self._credentials.fresh_token()
            found = claims(token) if token else None
            if found and found.sub and found.tenant:
                self._address = found.sub if "/" in found.sub else f"{found.tenant}/{found.sub}"

    async def _take_up(self) -> None:
        """Loads what an earlier process left in the file."""
        facts: dict[str, str] = dict(await self.journal.rows("SELECT * FROM relay_facts"))
        self._epoch = facts.get("epoch")
        await self.guard.open_pins()
        await self.outbox.open()
        await self.inbox.holds.open(self.options.ack_timeout_s)
        card = self.options.card | self.guard.card(self._address or "")
        auth: dict[str, Any] = {"window": self.options.window, "mode": self.options.mode, "card": card or None}
        auth["ack_timeout_s"] = self.options.ack_timeout_s
        self.connection.options |= {name: value for name, value in auth.items() if value is not None}

    # -- its end

    async def close(self) -> None:
        """Gives handlers and outgoing messages a few seconds to finish."""
        if not self.is_open:
            return
        self.is_open = False
        with suppress(TimeoutError, ClientError):
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self._finish()
        await self.connection.leave()
        await self._stop()
        if (left := self.outbox.unsent()) and not self.journal.is_durable:
            log.warning("%s closes with %d messages that the relay does not have; they are lost", self._address, left)
        self._end(Closed("the agent was closed"))
        await self.journal.close()

    async def _finish(self) -> None:
        """A relay that is known to be away is only waited for if what was sent would be lost."""
        if self.over.done():
            return
        await self.inbox.until_idle()
        is_away = isinstance(now := self.states.now, Connecting) and now.attempt > 1
        if not is_away or not self.journal.is_durable:
            await self.outbox.until_accepted()
        for _ in range(3):  # from the end of a handler to its ack: noted, kept, said
            await asyncio.sleep(0)
            await self.journal.kept()

    async def _stop(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that nobody forgets: if it dies, so does the agent, aloud."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        if isinstance(error, ClientError):
            log.error("the agent %s is over: %s", self._address, error)
        else:
            log.error("the agent %s has failed", self._address, exc_info=error)
        self._end(error if isinstance(error, ClientError) else Closed(f"{type(error).__name__}: {error}"))
        for task in self._tasks:
            task.cancel()

    def _end(self, error: ClientError) -> None:
        if self.over.done():
            return
        self.over.set_exception(error)
        if not isinstance(self.states.now, Ended | ReplacedBy):
            self.state_changed(Ended(str(error)))
        for part in (self.outbox, self.inbox, self.questions, self.topics, self.requests):
            part.close(error)

    def check(self) -> None:
        """Raises why it is over."""
        if self.over.done() and (error := self.over.exception()) is not None:
            raise error

    def check_receives(self) -> None:
        """Raises NotAllowed for who would wait for ever."""
        scopes = self._credentials.scopes
        if scopes is not None and "receive" not in scopes:
            raise NotAllowed("forbidden", "the token lacks the scope receive")

    # -- what the connection tells

    def session_began(self, welcome: Welcome) -> None:
        self._address = welcome.agent
        self.inbox.connected()
        self._learn_epoch(welcome.epoch, has_begun=True)
        self.questions.connected()
        self.topics.connected()

    def session_ended(self, code: int | None) -> None:
        if code == FRAME_TOO_LARGE:
            self.outbox.answers.frame_was_too_large()

    def _learn_epoch(self, epoch: str, has_begun: bool) -> None:
        """If the store was wiped, everything that is not settled goes out again."""
        is_new = self._epoch is not None and self._epoch != epoch
        if self._epoch != epoch:
            self._epoch = epoch
            self.journal.put(EPOCH, (epoch,))
        if is_new or has_begun:
            self.outbox.connected(is_new)

    def hear(self, said: Frame) -> None:
        match said:
            case Deliver(messages=messages):
                self.inbox.deliver(messages)
            case Accepted():
                self.outbox.answers.accepted(said)
            case Receipts():
                self.outbox.answers.receipts(said)
            case Refusals(refusals=refusals):
                self.outbox.answers.refused(refusals)
                self.inbox.holds.refused(refusals)
            case TopicEvent():
                self.topics.hear(said)
            case Epoch(epoch=epoch):
                self._learn_epoch(epoch, has_begun=False)
            case _:
                self.questions.hear(said)

    def state_changed(self, state: State) -> None:
        if isinstance(self.states.now, Live) and not isinstance(state, Live):
            self.questions.disconnected()
        self.states.change(state)

    @property
    def address(self) -> str:
        """Raises Closed as long as neither the token nor the relay has said it."""
        if self._address is None:
            raise Closed("the agent's address is not known before its first session")
        return self._address

    async def _registered(self, address: str) -> dict[str, Any] | None:
        try:
            return await self.calls.agent(address)
        except Unauthorized:
            return None  # an agent with a key has no way to ask

    # -- whether the mailbox is the agent's own

    async def _has_own_mailbox(self) -> bool:
        """Whether a reply is sure to come to this session."""
        try:
            self.check_receives()
        except NotAllowed:
            return False
        if self._mode is None:
            self._mode = ((await self._registered(self.address)) or {}).get("mode") or "exclusive"
        return self._mode != "shared"

    async def _learn_mode(self) -> None:
        """Whether what this agent gives back comes to itself again. Who cannot ask does not rely on it."""
        with suppress(ClientError):
            await self.questions.until_live()
            if self._credentials.token is not None:
                self.inbox.holds.has_own_mailbox = await self._has_own_mailbox()
