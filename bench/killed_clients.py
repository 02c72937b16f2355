"""Two clients to be killed, of `bench.client_kills` and the torture: one sends numbers, the other notes each."""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from relay.client import Agent, Message

STOP = "stop"  # a file of this name: send no more, and end when everything is settled
THREADS = 4
PACE_S = 0.004


def last_returned(path: Path) -> int:
    """The last number whose send returned, over all lives of the sender."""
    return max((int(line) for line in path.read_text().split()), default=-1) if path.exists() else -1


async def send(urls: list[str], token: str, folder: Path, pace_s: float = PACE_S) -> None:
    """Numbers, one after the other. A number whose send did not return is sent again, with the same id."""
    returned = os.open(folder / "returned", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    number = last_returned(folder / "returned")
    async with Agent(urls, token=token, outbox=folder / "sender.db") as me:
        while not (folder / STOP).exists():
            number += 1
            await me.send("receiver", number, id=f"m-{number}", thread=f"t{number % THREADS}")
            os.write(returned, b"%d\n" % number)
            await asyncio.sleep(pace_s)
        await me.settled()


async def receive(urls: list[str], token: str, folder: Path, _pace_s: float = PACE_S) -> None:
    """Each number goes into the same transaction as the note that it is handled."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    progress = os.open(folder / "progress", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with Agent(urls, token=token, outbox=folder / "receiver.db") as me:
        await me.execute("CREATE TABLE IF NOT EXISTS handled (thread TEXT, n INTEGER)")

        @me.on(concurrency=8, ordered_by="thread")
        async def handle(message: Message[Any]) -> None:
            await asyncio.sleep(0.001)
            message.also("INSERT INTO handled VALUES (?, ?)", message.thread, message.payload)
            os.write(progress, b".")

        running = asyncio.create_task(me.run())
        ending = asyncio.create_task(over.wait())
        await asyncio.wait({running, ending}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()


async def main(role: str, urls: str, token: str, folder: str, *pace_s: str) -> None:
    do = {"sender": send, "receiver": receive}[role]
    await do(urls.split(","), token, Path(folder), *map(float, pace_s))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(main(*sys.argv[1:]))
