"""An agent without `await`."""

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from relay import client
from relay.client import Event, Message, PresenceInfo, State, SyncState
from relay.client.agent.receiving import AnyHandler
from relay.client.inbox.routes import Order
from relay.sync.loop import LOOP, like
from relay.sync.sent import Sent


class _Opened:
    """What all capabilities of an agent share; see `relay.client`."""

    _agent: client.Agent


class _Sending(_Opened):
    @like(client.Agent.send)
    def send(self, to: str, payload: Any, **options: Any) -> Sent:
        """Puts a message into the outbox.

        >>> alice.send("bob", {"n": 1}, thread="t").accepted()
        'memory'
        """
        return Sent(LOOP.call(self._agent.send(to, payload, **options)))

    @like(client.Agent.send_many)
    def send_many(self, to: str, items: Iterable[Any], **options: Any) -> list[Sent]:
        """Many messages to one agent, in order.

        >>> len(alice.send_many("bob", [1, 2, 3]))
        3
        """
        return [Sent(sent) for sent in LOOP.call(self._agent.send_many(to, items, **options))]

    def flush(self) -> None:
        """Waits until the relay has everything that was sent so far.

        >>> alice.flush()
        """
        LOOP.call(self._agent.flush())

    def settled(self) -> None:
        """Waits until it is known of every message how it ended.

        >>> alice.settled()
        """
        LOOP.call(self._agent.settled())

    @property
    def unsettled(self) -> int:
        """How many messages are in the outbox.

        >>> alice.send("carol", 1).accepted(), alice.unsettled
        ('memory', 1)
        """
        return self._agent.unsettled

    @property
    def unsent(self) -> int:
        """How many of them the relay does not have yet.

        >>> alice.send("carol", 1).accepted(), alice.unsent
        ('memory', 0)
        """
        return self._agent.unsent

    @like(client.Agent.ask)
    def ask(self, to: str, payload: Any, **options: Any) -> Any:
        """Sends a request and returns the payload of its reply.

        >>> @bob.on()
        ... def double(message):
        ...     return message.payload * 2
        >>> alice.ask("bob", 2)
        4
        """
        return LOOP.call(self._agent.ask(to, payload, **options))

    @like(client.Agent.ask_stream)
    def ask_stream(self, to: str, payload: Any, **options: Any) -> Iterator[Any]:
        """Sends a request and gives the parts of its reply as they come.

        >>> @bob.on()
        ... async def tell(message):
        ...     yield "once"
        ...     yield "upon a time"
        >>> list(alice.ask_stream("bob", "tell me"))
        ['once', 'upon a time']
        """
        return LOOP.iterate(self._agent.ask_stream(to, payload, **options))


class _Receiving(_Opened):
    def on(
        self, type: str = "*", *, concurrency: int = 1, ordered_by: Order = None
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Makes a function the handler of messages of a type. Plain functions run in threads.

        >>> @bob.on("job.*", concurrency=8, ordered_by="thread")
        ... def job(message):
        ...     return message.payload * 2
        >>> alice.ask("bob", 21, type="job.double")
        42
        """

        def register(handler: AnyHandler) -> AnyHandler:
            LOOP.run(lambda: self._agent.on(type, concurrency=concurrency, ordered_by=ordered_by)(handler))
            return handler

        return register

    def messages(self, type: str = "*", *, ack: bool = True) -> Iterator[Message[Any]]:
        """Messages one by one. Each is acked when the next is asked for, unless it was settled, or `ack` is off.

        >>> sent = alice.send("bob", "hello")
        >>> for message in bob.messages():
        ...     print(message.payload)
        ...     message.ack()
        ...     break
        hello
        >>> sent.ended()
        Delivered(attempt=1, was_stored=False)
        """
        return LOOP.iterate(self._agent.messages(type, ack=ack))


class _Company(_Opened):
    def publish(self, topic: str, payload: Any) -> None:
        """Tells every agent of the tenant that listens to a topic right now.

        >>> alice.publish("news", "hello")
        """
        LOOP.call(self._agent.publish(topic, payload))

    def subscribe(self, *topics: str) -> Iterator[Event]:
        """Publications on these topics from now on.

        >>> import threading
        >>> threading.Timer(0.05, lambda: alice.publish("news", "hello")).start()
        >>> next(bob.subscribe("news")).payload
        'hello'
        """
        return LOOP.iterate(self._agent.subscribe(*topics))

    def block(self, *agents: str) -> list[str]:
        """Hears nothing of these agents any more.

        >>> bob.block("mallory")
        ['acme/mallory']
        """
        return LOOP.call(self._agent.block(*agents))

    def unblock(self, *agents: str) -> list[str]:
        """Hears of these agents again.

        >>> bob.unblock("mallory")
        []
        """
        return LOOP.call(self._agent.unblock(*agents))

    def presence(self, *agents: str) -> dict[str, PresenceInfo]:
        """Who is online.

        >>> bob.live()
        >>> alice.presence("bob")["acme/bob"].online
        True
        """
        return LOOP.call(self._agent.presence(*agents))

    def sync(self, peer: str, thread: str = "") -> SyncState:
        """The state of both sides of a thread.

        >>> alice.sync("bob", "t").sent.last_seq
        0
        """
        return LOOP.call(self._agent.sync(peer, thread))


class Agent(_Sending, _Receiving, _Company):
    """An agent for scripts. It has the arguments of `relay.client.Agent`, and is used in `with`.

    >>> with Agent(relay, token=relay.token("erin")) as erin:
    ...     erin.send("bob", {"n": 1}).accepted()
    'memory'
    """

    @like(client.Agent.__init__)
    def __init__(self, *relay: Any, **options: Any) -> None:
        self._agent = client.Agent(*relay, **options)

    def __enter__(self) -> Self:
        LOOP.call(self._agent.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets messages go out, and closes.

        >>> with Agent(relay, token=relay.token("erin")) as erin:
        ...     erin.close()
        """
        LOOP.call(self._agent.close())

    @property
    def address(self) -> str:
        """The agent's own address.

        >>> alice.address
        'acme/alice'
        """
        return self._agent.address

    @property
    def state(self) -> State:
        """The current state of the connection.

        >>> alice.live()
        >>> type(alice.state).__name__
        'Live'
        """
        return self._agent.state

    def states(self) -> Iterator[State]:
        """The state of the connection, and then every change.

        >>> alice.live()
        >>> next(alice.states())
        Live(url='fake://relay', instance='fake')
        """
        return LOOP.iterate(self._agent.states())

    def live(self) -> None:
        """Waits until there is a session.

        >>> alice.live()
        """
        LOOP.call(self._agent.live())

    def run(self) -> None:
        """Waits until the connection is over for good, and raises why.

        >>> import threading
        >>> threading.Timer(0.05, bob.close).start()
        >>> try:
        ...     bob.run()
        ... except Closed as error:
        ...     print(error.reason)
        the agent was closed
        """
        LOOP.call(self._agent.run())

    def register_key(self) -> None:
        """Registers the public key that this agent signs with, for others to check against.

        >>> with Agent(relay, token=relay.token("erin"), security=Security(sign_with=Key.generate())) as erin:
        ...     erin.register_key()
        """
        LOOP.call(self._agent.register_key())

    def pin(self, name: str, key: str) -> None:
        """Trusts this public key from now on.

        >>> alice.pin("acme/bob", Key.generate().public)
        """
        LOOP.run(lambda: self._agent.pin(name, key))

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Runs a statement on tables of your own in the outbox's file, where `Message.also` writes.

        >>> with Agent(relay, token=relay.token("erin"), outbox=folder / "erin.db") as erin:
        ...     erin.execute("SELECT 1 + 1")
        [(2,)]
        """
        return LOOP.call(self._agent.execute(sql, *values))
