"""Two agents chat. Each keeps what it says in a file until the other has heard it, whoever is offline meanwhile."""

import asyncio
import sys
from pathlib import Path

from relay.client import Agent, Message
from relay.client.connection.link import Relay


async def chat(relay: str | Relay, token: str, peer: str, lines: list[str], folder: Path) -> list[str]:
    """Says its lines, and hears as many."""
    heard: list[str] = []
    done = asyncio.Event()
    async with Agent(relay, token=token, outbox=folder / f"to-{peer}.db") as me:

        @me.on("chat", ordered_by="thread")
        async def hear(message: Message[str]) -> None:
            heard.append(f"{message.sender}: {message.payload}")
            if len(heard) == len(lines):
                done.set()

        for line in lines:
            await me.send(peer, line, type="chat", thread="small talk")
        await done.wait()
        await me.settled()
    return heard


async def main(relay: str | Relay, alices_token: str, bobs_token: str, folder: Path) -> None:
    heard = await asyncio.gather(
        chat(relay, alices_token, "bob", ["Hello Bob", "How are you?", "Bye"], folder),
        chat(relay, bobs_token, "alice", ["Hi Alice", "Fine", "Bye"], folder),
    )
    for lines in heard:
        print(*lines, sep="\n")


if __name__ == "__main__":
    where, alice, bob = sys.argv[1:]
    asyncio.run(main(where, alice, bob, Path()))
