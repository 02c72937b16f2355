"""The whole life of messages at one load: how many a second, and what each costs in processor time, disk and memory.

`python -m bench.life --seconds 5 [--senders random] [--rate 2000] [--fsync always] [--shards 8]`
"""

from typing import Any

import click
import orjson
import redis
import uvloop

from bench.load import BATCH, Load, percentile
from bench.stand import Stand, stand
from relay.auth import Tokens
from relay.settings import Settings

PAIRS = 100


def counters(client: Any) -> dict[str, float]:
    """What the server has done so far."""
    commands = client.info("commandstats")
    calls = sum(commands.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))
    appended = client.info("persistence")["aof_current_size"]
    return {"calls": calls, "aof": appended, "memory": client.info("memory")["used_memory"]}


async def measure(there: Stand, load: Load, seconds: float, rate: float, warm: int) -> dict[str, float]:
    """Flat out, or at `rate` messages a second with one message a frame."""
    client: Any = redis.Redis.from_url(there.url)
    client.config_set("auto-aof-rewrite-percentage", "0")
    await load.open()
    if rate:
        await load.paced(rate, 1.0)
    else:
        await load.flat_out(min(1.0, seconds / 4), warm=warm)
    before, done, (relay_s, redis_s) = counters(client), load.completed, there.cpu_s()
    found: dict[str, float] = {}
    if rate:
        latencies = await load.paced(rate, seconds)
        found["accepted_p50_ms"] = percentile(latencies.accepted_ms, 0.5)
        found["accepted_p99_ms"] = percentile(latencies.accepted_ms, 0.99)
        found["delivered_p50_ms"] = percentile(latencies.delivered_ms, 0.5)
        found["delivered_p99_ms"] = percentile(latencies.delivered_ms, 0.99)
        found["msgs_s"] = (load.completed - done) / seconds
    else:
        found["msgs_s"] = await load.flat_out(seconds)
    after, (relay_after_s, redis_after_s) = counters(client), there.cpu_s()
    messages = load.completed - done
    load.close()
    return found | {
        "relay_us": (relay_after_s - relay_s) / messages * 1e6,
        "redis_us": (redis_after_s - redis_s) / messages * 1e6,
        "calls": (after["calls"] - before["calls"]) / messages,
        "aof_bytes": (after["aof"] - before["aof"]) / messages,
        "memory_bytes": (after["memory"] - before["memory"]) / messages,
    }


@click.command()
@click.option("--seconds", default=4.0)
@click.option("--senders", type=click.Choice(["paired", "random"]), default="paired")
@click.option("--rate", default=0.0, help="messages a second; 0: as fast as they go")
@click.option("--batch", default=BATCH)
@click.option("--fsync", type=click.Choice(["always", "everysec", "no"]), default="everysec")
@click.option("--shards", default=str(Settings().shards))
@click.option("--server", default="", help="the program; else the one that the relay would choose")
def main(seconds: float, senders: str, rate: float, batch: int, fsync: str, shards: str, server: str) -> None:
    with stand(fsync=fsync, program=server, shards=shards) as there:
        tokens = Tokens(there.settings)
        load = Load(there.ports, tokens, PAIRS, 1 if rate else batch, is_random=senders == "random")
        found = uvloop.run(measure(there, load, seconds, rate, warm=2_000))
    print(orjson.dumps({name: round(value, 2) for name, value in found.items()}).decode())


if __name__ == "__main__":
    main()
