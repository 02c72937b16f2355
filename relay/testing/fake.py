"""The fake relay: agents connect to it, and tests control it."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

from relay.client import payloads
from relay.client.agent.agent import Agent
from relay.client.connection.link import Link
from relay.testing.clock import HandClock
from relay.testing.http import FakeHttp, HttpAnswer
from relay.testing.identities import Identities
from relay.testing.mailbox import Entry
from relay.testing.post import Limits, Post, whole
from relay.testing.session import FakeLink, FakeSession

LONG_S = 365 * 86_400.0  # of an agent's token: longer than tests move the clock


class FakeRelay:
    """A relay in the test's own process, with the behaviour that the client relies on.

    Agents are made with `agent`, or as `Agent(relay, token=relay.token("bob"))`. Its `clock` is moved by the test.

    >>> relay = FakeRelay()
    >>> async with relay.agent("alice") as alice:
    ...     sent = await alice.send("bob", "hello")
    ...     await sent.accepted()
    'memory'
    >>> relay.waiting("bob")
    ['hello']
    """

    def __init__(
        self,
        *,
        tenant: str = "acme",
        mailbox_max_messages: int = 1_000,
        max_payload_bytes: int = 65_536,
        message_ttl_s: float = 604_800,
        dedup_window_s: float = 3_600,
    ) -> None:
        self.urls: Sequence[str] = ["fake://relay"]
        self.clock = HandClock()
        self.tenant = tenant
        self.epoch = secrets.token_hex(8)
        self.registrations: dict[str, dict[str, Any]] = {}
        self.is_down = False
        self._limits = Limits(mailbox_max_messages, max_payload_bytes, message_ttl_s, dedup_window_s)
        self.post = Post(self.clock, self._limits)
        self.identities = Identities(self.clock, self.registrations)
        self._http = FakeHttp(self)

    # -- for tests

    def token(self, name: str, scope: str = "send receive", ttl_s: float = 3_600) -> str:
        """A token of an agent of the fake relay's tenant.

        >>> relay.token("bob").count(".")
        2
        """
        return self.identities.token(name.rpartition("/")[2], self.tenant, scope, ttl_s)

    def agent(self, name: str, **options: Any) -> Agent:
        """An agent of the fake relay, to be used in `async with`.

        >>> async with relay.agent("erin") as erin:
        ...     erin.address
        'acme/erin'
        """
        if "token" not in options and "key" not in options:
            options["token"] = lambda: self.token(name, ttl_s=LONG_S)
        return Agent(self, **options)

    def waiting(self, name: str) -> list[Any]:
        """The payloads in a mailbox, held or not, in order.

        >>> await alice.send("carol", {"n": 1})
        <Sent ... to carol: ...>
        >>> await alice.flush()
        >>> relay.waiting("carol")
        [{'n': 1}]
        """
        box = self.post.mailbox(whole(name, self.tenant))
        return _payloads(sorted(box.entries.values(), key=lambda entry: (-entry.priority, entry.number)))

    def dead(self, name: str) -> list[Any]:
        """The payloads in a dead-letter box.

        >>> relay.dead("bob")
        []
        """
        return _payloads(self.post.mailbox(whole(name, self.tenant)).dead)

    def drop(
        self, name: str | None = None, word: str = "", code: int = 1006, retry_after_ms: int | None = None
    ) -> None:
        """Ends the sessions of an agent, or all: cut without a word, or closed with a code.

        >>> relay.drop("alice")
        >>> await alice.live()
        >>> (await alice.presence("bob"))["acme/bob"].online
        True
        """
        for address, sessions in list(self.post.sessions.items()):
            for session in list(sessions):
                if name is None or address == whole(name, self.tenant):
                    if word:
                        session.close(word, code, retry_after_ms)
                    else:
                        session.vanish()

    def go_down(self) -> None:
        """Nobody can connect any more; what is stored stays.

        >>> relay.go_down()
        >>> sent = await alice.send("bob", "later")
        >>> relay.come_up()
        >>> await sent.accepted()
        'memory'
        """
        self.is_down = True
        self.drop()

    def come_up(self) -> None:
        """The relay is back.

        >>> relay.come_up()
        """
        self.is_down = False

    def wipe(self) -> None:
        """Deletes everything that is stored, and tells the agents.

        >>> sent = await alice.send("carol", "hello")
        >>> await sent.accepted()
        'memory'
        >>> relay.wipe()
        >>> await asyncio.sleep(0.05)
        >>> relay.waiting("carol")
        ['hello']
        """
        sessions = self.post.sessions
        self.epoch = secrets.token_hex(8)
        self.post = Post(self.clock, self._limits)
        self.post.sessions = sessions
        for session in [one for some in sessions.values() for one in some]:
            session.held.clear()
            session.tell("epoch", epoch=self.epoch)

    async def until_subscribed(self, topic: str) -> None:
        """Waits until somebody listens to a topic.

        >>> listening = asyncio.create_task(anext(bob.subscribe("news")))
        >>> await relay.until_subscribed("news")
        """
        while not any(topic in one.topics for some in self.post.sessions.values() for one in some):  # noqa: ASYNC110
            await asyncio.sleep(0)  # in one process there is nothing to wait for

    # -- for agents

    async def connect(self, url: str) -> Link:
        if self.is_down:
            raise ConnectionRefusedError(f"{url} is down")
        link = FakeLink()
        link.session = FakeSession(self, link)
        return link

    async def close(self) -> None:
        """Nothing is open."""

    async def call(self, method: str, url: str, path: str, token: str, body: Any = None) -> HttpAnswer:
        if self.is_down:
            raise ConnectionRefusedError(f"{url} is down")
        return await self._http.call(method, path, token, body)


def _payloads(entries: list[Entry]) -> list[Any]:
    return [payloads.plain(bytes(entry.message["payload"])) for entry in entries]
