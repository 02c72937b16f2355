"""How the cost of a message grows with agents, backlog, payload, instances and shards: one table as JSON.

`python -m bench.growth --seconds 4 [--senders paired] [--only agents,shards]`
"""

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
import orjson
import uvloop

from bench import life
from bench.load import BATCH, IN_FLIGHT, Load
from bench.scale import fill
from bench.stand import Stand, stand
from relay.auth import Tokens
from relay.settings import Settings
from relay.store.store import open_store

MOST_IN_FLIGHT = 20_000  # messages of all senders together, however many these are
MOST_BYTES_IN_FLIGHT = 64 * 2**20
FILLED_AT_ONCE = 10_000
WARM = 2_000
NO_LIMIT = 10_000_000
FIGURES = ("msgs_s", "relay_us", "redis_us", "calls", "aof_bytes", "memory_bytes")


@dataclass(frozen=True, slots=True)
class Case:
    """One point: everything as usual but what grows."""

    agents: int = 200  # half of them send to the other half
    backlog: int = 0  # messages that wait for agents who are away, each in a mailbox of its own
    payload_bytes: int = 256
    instances: int = 2
    shards: int = Settings().shards

    @property
    def pairs(self) -> int:
        return self.agents // 2

    @property
    def in_flight(self) -> int:
        """Of one sender."""
        return min(IN_FLIGHT, MOST_IN_FLIGHT // self.pairs, MOST_BYTES_IN_FLIGHT // (self.pairs * self.payload_bytes))

    @property
    def batch(self) -> int:
        return min(BATCH, self.in_flight)


GROWTHS: dict[str, tuple[int, ...]] = {
    "agents": (20, 200, 2_000, 8_000),
    "backlog": (0, 10_000, 100_000, 1_000_000),
    "payload_bytes": (64, 256, 1_024, 4_096, 16_384),
    "instances": (1, 2, 4),
    "shards": (1, 8, 64),
}


def cases(only: str = "") -> Iterator[tuple[str, Case]]:
    """What grows, and each point of it."""
    for grows in [name for name in only.split(",") if name] or GROWTHS:
        for value in GROWTHS[grows]:
            yield grows, Case(**{grows: value})


async def wait_in_mailboxes(there: Stand, case: Case) -> None:
    """Stores the backlog."""
    settings = replace(there.settings, shards=case.shards, sender_max_mailboxes=NO_LIMIT, tenant_max_mailboxes=NO_LIMIT)
    async with open_store(settings, there.url) as store:
        for start in range(0, case.backlog, FILLED_AT_ONCE):
            await fill(store, range(start, min(start + FILLED_AT_ONCE, case.backlog)))


async def point(there: Stand, case: Case, seconds: float, is_random: bool) -> dict[str, float]:
    await wait_in_mailboxes(there, case)
    load = Load(
        there.ports,
        Tokens(there.settings),
        case.pairs,
        case.batch,
        case.in_flight,
        is_random=is_random,
        payload="x" * (case.payload_bytes - 2),
    )
    return await life.measure(there, load, seconds, rate=0, warm=WARM)


def measure(case: Case, seconds: float, is_random: bool) -> dict[str, float]:
    """On a stand of its own."""
    with stand(case.instances, fsync="everysec", shards=str(case.shards), sessions_per_s="100000") as there:
        found = uvloop.run(point(there, case, seconds, is_random))
    return {name: round(found[name], 2) for name in FIGURES}


@click.command()
@click.option("--seconds", default=4.0)
@click.option("--senders", type=click.Choice(["paired", "random"]), default="random")
@click.option("--only", default="", help="what grows, such as agents,shards")
def main(seconds: float, senders: str, only: str) -> None:
    rows: list[dict[str, Any]] = []
    for grows, case in cases(only):
        print(f"· {grows}: {getattr(case, grows):,}", file=sys.stderr)
        rows.append({"grows": grows, **asdict(case), **measure(case, seconds, senders == "random")})
    print(orjson.dumps(rows, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    main()
