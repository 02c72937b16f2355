"""How it scales: memory of idle sessions, and a sweep over many mailboxes of which few are due.

python -m bench.scale --sessions 10000 --mailboxes 100000
"""

import asyncio
import sys
import time

import click
import uvloop
from msgspec import Raw

from bench.filling import store_all
from bench.sockets import LoadSocket, connect
from bench.stand import Stand, resident_bytes, stand
from relay.auth import Tokens
from relay.protocol.message import Message
from relay.store.store import Store, open_store
from workers.sweeper import sweep_shard

CONNECTING_AT_ONCE = 50
DUE_SHARE = 0.01


async def idle_sessions(there: Stand, count: int) -> float:
    """Bytes that one idle session adds to an instance."""
    tokens = Tokens(there.settings)
    sockets: list[LoadSocket] = []

    async def open_some(numbers: range) -> None:
        for number in numbers:
            token = tokens.make(f"idle/a-{number}", "send receive", 3_600)
            sockets.append(await connect(there.ports[0], token, lambda *_: None))

    await open_some(range(count, count + 100))  # what the first sessions need is not counted
    before = resident_bytes(there.instance_pids[0])
    step = count // CONNECTING_AT_ONCE
    await asyncio.gather(*(open_some(range(n * step, (n + 1) * step)) for n in range(CONNECTING_AT_ONCE)))
    after = resident_bytes(there.instance_pids[0])
    for socket in sockets:
        socket.close()
    return (after - before) / (step * CONNECTING_AT_ONCE)


async def sweep(there: Stand, mailboxes: int) -> dict[str, float]:
    """A sweep over mailboxes with one message each, one in a hundred of them past the TTL."""
    async with open_store(there.settings, there.url, prefix="sweep") as store:
        due = int(mailboxes * DUE_SHARE)
        now_ms = store.clock.now_ms()
        ttl_ms = there.settings.message_ttl_s * 1_000
        await fill(store, range(due, mailboxes))
        await fill(store, range(due), ttl_s=1.0)
        await make_due(store, range(due), now_ms - ttl_ms)
        own_ms = store.clock.own_ms()
        store.clock.heard(now_ms + 60_000, own_ms, own_ms)  # the short TTLs are over
        visited = 0
        expire = store.expiry.expire

        async def counting(shard: int, addresses: list[str]) -> dict[str, tuple[int, bool]]:
            nonlocal visited
            visited += len(addresses)
            return await expire(shard, addresses)

        store.expiry.expire = counting  # type: ignore[method-assign]
        began = time.perf_counter()
        ended = 0
        for shard in range(store.keys.shards):
            ended += await sweep_shard(store, shard, store.clock.now_ms())
        return {"due": due, "visited": visited, "ended": ended, "seconds": time.perf_counter() - began}


async def fill(store: Store, numbers: range, ttl_s: float | None = None) -> None:
    messages = (Message(id="m", to=f"sweep/a-{number}", payload=Raw(b"0"), ttl_s=ttl_s) for number in numbers)
    await store_all(store, "sweep/sender", messages)


async def make_due(store: Store, numbers: range, at_ms: int) -> None:
    """As if their messages had been accepted a TTL ago."""
    for number in numbers:
        address = f"sweep/a-{number}"
        await store.pipeline.command("ZADD", store.keys.waiting(store.keys.shard(address)), at_ms, address)


@click.command()
@click.option("--sessions", default=10_000, show_default=True)
@click.option("--mailboxes", default=100_000, show_default=True)
def main(sessions: int, mailboxes: int) -> None:
    """Measure how the relay scales on this machine."""
    with (
        stand(instances=1, sessions_per_s="100000") as there,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        print(f"· {sessions} idle sessions", file=sys.stderr)
        print(f"an idle session costs {runner.run(idle_sessions(there, sessions)) / 1_024:.1f} KB of its instance")
        print(f"· a sweep over {mailboxes} mailboxes", file=sys.stderr)
        swept = runner.run(sweep(there, mailboxes))
        print(
            f"of {mailboxes} mailboxes {swept['due']:.0f} were due, {swept['visited']:.0f} visited, "
            f"{swept['ended']:.0f} messages ended, in {swept['seconds']:.2f} s"
        )


if __name__ == "__main__":
    main()
