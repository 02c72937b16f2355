"""Messages that lie in mailboxes before something is measured."""

import asyncio
from collections.abc import Iterable

from relay.protocol.message import Message
from relay.store.mailbox.outcomes import AcceptOutcome, Stored
from relay.store.record.draft import Draft
from relay.store.store import Store

AT_ONCE = 1_000  # then the pipeline gets a turn


async def store_all(store: Store, sender: str, messages: Iterable[Message]) -> None:
    """Returns when all of them are stored."""
    left, all_given, done = 0, False, asyncio.Event()

    def answered(_: Draft, outcome: AcceptOutcome) -> None:
        nonlocal left
        assert isinstance(outcome, Stored), outcome
        left -= 1
        if left == 0 and all_given:
            done.set()

    for number, message in enumerate(messages, 1):
        left += 1
        store.accepting.accept(store.accepting.draft(sender, message, answered))
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    all_given = True
    if left:
        await done.wait()
