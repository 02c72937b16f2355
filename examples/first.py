"""The first agents: one asks, the other answers."""

import asyncio
import sys

from relay.client import Agent, Message


async def main(relay: str, alices_token: str, bobs_token: str) -> None:
    async with Agent(relay, token=alices_token) as alice, Agent(relay, token=bobs_token) as bob:

        @bob.on("sum")
        async def add(message: Message[list[int]]) -> int:
            return sum(message.payload)

        print(await alice.ask("bob", [2, 2], type="sum"))


asyncio.run(main(*sys.argv[1:]))
