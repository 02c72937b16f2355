"""A pool of workers on one shared mailbox. Each message is handled once; a worker keeps the order of each thread."""

import asyncio
import sys
from typing import TypedDict

from relay.client import Agent, Message, Reject, Retry
from relay.client.connection.link import Relay


class Job(TypedDict):
    """Some work on an account."""

    account: str
    amount: int


async def work(relay: str | Relay, token: str, name: str, done: list[str]) -> None:
    """One worker. A real one would be a process of its own."""
    async with Agent(relay, token=token, mode="shared", window=4) as me:

        @me.on("job.*", concurrency=4, ordered_by="thread")
        async def job(message: Message[Job]) -> None:
            if message.payload["amount"] < 0:
                raise Reject("an amount is never negative")
            if message.payload["amount"] == 13 and message.attempt == 1:
                raise Retry(after=0.1)
            done.append(f"{name} booked {message.payload['amount']} for {message.payload['account']}")

        await me.run()


async def main(relay: str | Relay, clients_token: str, pool: str, pools_token: str) -> None:
    done: list[str] = []
    workers = [asyncio.create_task(work(relay, pools_token, f"worker {n}", done)) for n in range(3)]
    async with Agent(relay, token=clients_token) as client:
        sents = [
            await client.send(pool, Job(account=account, amount=amount), type="job.book", thread=account)
            for amount in (1, 13, -5)
            for account in ("ann", "ben")
        ]
        for sent in sents:
            print(sent.id, await sent.ended())
    print(*done, sep="\n")
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
