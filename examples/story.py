"""A request whose answer comes in parts, as a language model gives its words."""

import asyncio
import sys
from collections.abc import AsyncIterator

from relay.client import Agent, Message
from relay.client.connection.link import Relay


async def main(relay: str | Relay, alices_token: str, bobs_token: str) -> None:
    async with Agent(relay, token=alices_token) as alice, Agent(relay, token=bobs_token) as bob:

        @bob.on("story")
        async def tell(message: Message[str]) -> AsyncIterator[str]:
            for word in f"Once upon a time there was a {message.payload}".split():
                yield word
                await asyncio.sleep(0.01)

        async for word in alice.ask_stream("bob", "fox", type="story"):
            print(word, end=" ", flush=True)
        print()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
