"""An agent: sends, receives, asks and answers, through any instance of the relay."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from relay.client.agent.asking import Asking
from relay.client.agent.engine import Engine
from relay.client.agent.options import Options
from relay.client.agent.peers import Peers
from relay.client.agent.receiving import Receiving
from relay.client.agent.sending import Sending
from relay.client.connection.credentials import Credentials, TokenSource
from relay.client.connection.link import Network, Relay
from relay.client.connection.states import State
from relay.client.errors import Unauthorized
from relay.client.inbox.gaps import Gap
from relay.client.keys.keys import Key
from relay.client.keys.security import Security
from relay.client.spans import Span, maybe_seconds

MAX_WINDOW = 1_000


class Agent(Sending, Receiving, Asking, Peers):
    """One agent's connection to the relay, for as long as the `async with` lasts.

    `relay` is one url or several (ws, wss, http, https). Authenticate with a `token` (a string, or a plain or async
    function that returns a fresh one), or with a `key` and your `address`. With `outbox` messages are kept in that file
    until their outcome is known, even through crashes. Without it they are kept in memory.

    `mode` is `exclusive` (the newest session of the agent has the mailbox) or `shared` (many compete). The default is
    the registered mode, else exclusive. `window` is how many messages may be unconfirmed. `ack_timeout` limits how long
    one may stay unconfirmed; the client extends it while a handler works. If the outbox is full (`outbox_limit`
    messages), `send` waits, or raises OutboxFull with `when_full="raise"`.

    >>> async with Agent(relay, token=relay.token("erin")) as erin:
    ...     sent = await erin.send("bob", {"n": 1})
    ...     await sent.accepted()
    'memory'
    """

    def __init__(
        self,
        relay: str | Sequence[str] | Relay,
        *,
        token: TokenSource | None = None,
        key: Key | None = None,
        address: str | None = None,
        outbox: str | Path | None = None,
        outbox_limit: int = 100_000,
        when_full: Literal["wait", "raise"] = "wait",
        mode: Literal["exclusive", "shared"] | None = None,
        window: int = 100,
        ack_timeout: Span | None = None,
        card: dict[str, Any] | None = None,
        security: Security | None = None,
        on_gap: Callable[[Gap], None] | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= window <= MAX_WINDOW:
            raise ValueError(f"window is how many messages may be here unconfirmed: 1 to {MAX_WINDOW}")
        if outbox_limit < 1:
            raise ValueError("outbox_limit is how many messages may be in the outbox: 1 or more")
        self._owns_relay = isinstance(relay, str) or not hasattr(relay, "connect")
        self._relay: Relay = Network(relay) if self._owns_relay else relay  # type: ignore[arg-type,assignment]
        self._credentials = Credentials(token, key, address)
        self._own_address = address
        self._options = Options(
            outbox=outbox,
            outbox_limit=outbox_limit,
            waits_when_full=when_full == "wait",
            mode=mode,
            window=window,
            ack_timeout_s=maybe_seconds(ack_timeout),
            card=card or {},
            security=security or Security(),
            on_gap=on_gap,
        )

    # -- its life

    async def __aenter__(self) -> Self:
        """Opens the outbox and starts to connect; it does not wait for the relay."""
        self._opened = Engine(self._relay, self._credentials, self._options, self._own_address)
        await self._opened.open(self._handlers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Gives handlers and outgoing messages a few seconds to finish, and closes. The outbox file keeps its messages.

        >>> erin = relay.agent("erin")
        >>> async with erin:
        ...     pass
        >>> await erin.close()
        """
        if self._opened is not None:
            await self._opened.close()
        if self._owns_relay:
            await self._relay.close()

    async def run(self) -> None:
        """Waits until the connection is over for good, and raises why: the main line of a worker.

        >>> try:
        ...     async with asyncio.timeout(0.01):
        ...         await bob.run()
        ... except TimeoutError:
        ...     print("still there")
        still there
        """
        await asyncio.shield(self._engine.over)

    # -- who it is

    @property
    def address(self) -> str:
        """The agent's own address. Raises Closed as long as neither the token nor the relay has said it.

        >>> alice.address
        'acme/alice'
        """
        return self._engine.address

    @property
    def state(self) -> State:
        """The current state of the connection.

        >>> type(alice.state).__name__
        'Live'
        """
        return self._engine.states.now

    def states(self) -> AsyncIterator[State]:
        """The state of the connection, and then every change: Connecting, Live, ReplacedBy, Ended.

        >>> async for state in alice.states():
        ...     print(state)
        ...     break
        Live(url='fake://relay', instance='fake')
        """
        return self._engine.states.follow()

    async def live(self) -> None:
        """Waits until there is a session. Raises Closed when there will be none.

        >>> await alice.live()
        """
        await self._engine.questions.until_live()

    # -- keys, and one's own tables

    async def register_key(self) -> None:
        """Registers the public key that this agent signs with, for others to check against. Needs a token.

        >>> erin = relay.agent("erin", security=Security(sign_with=Key.generate()))
        >>> async with erin:
        ...     await erin.register_key()
        """
        if self._options.security.sign_with is None:
            raise Unauthorized("the agent has no key to sign with: Security(sign_with=…)")
        await self._engine.calls.register(self.address, key=self._options.security.sign_with.public)

    def pin(self, name: str, key: str) -> None:
        """Trusts this public key from now on: of `acme/bob` for signatures, of `seal:acme/bob` for seals.

        >>> alice.pin("acme/bob", Key.generate().public)
        """
        self._engine.guard.pin(name, key)

    async def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Runs a statement on tables of your own in the outbox's file, where `Message.also` writes.

        >>> erin = relay.agent("erin", outbox=folder / "erin.db")
        >>> async with erin:
        ...     await erin.execute("SELECT 1 + 1")
        [(2,)]
        """
        return await self._engine.journal.rows(sql, values)
