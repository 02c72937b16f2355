"""A sealed conversation: the relay carries it and cannot read it, and each is sure who the other is."""

import asyncio
import sys

from relay.client import Agent, Key, Message, SealingKey, Security
from relay.client.connection.link import Relay


async def main(relay: str | Relay, alices_token: str, bobs_token: str) -> None:
    """Keys are made anew here; a real agent keeps them (`Key.save`, `Key.load`)."""
    hers = Security(sign_with=Key.generate(), seal_with=SealingKey.generate())
    his = Security(sign_with=Key.generate(), seal_with=SealingKey.generate(), requires_signatures=True)
    async with Agent(relay, token=bobs_token, security=his) as bob:

        @bob.on()
        async def answer(message: Message[str]) -> str:
            print("bob reads:", message.payload, "| signed:", message.is_signed, "| sealed:", message.was_sealed)
            return "at noon"

        await bob.live()  # from now on his card tells everybody his sealing key
        async with Agent(relay, token=alices_token, security=hers) as alice:
            print("alice reads:", await alice.ask("bob", "when do we meet?", sealed=True))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
