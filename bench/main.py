"""`relay bench`: every part, one after the other, and one table at the end."""

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import uvloop
from rich.table import Table

from bench import client
from bench.ceiling import ceiling
from bench.load import BATCH, IN_FLIGHT, Load, percentile
from bench.peers.chart import chart as draw
from bench.peers.peer import Peer
from bench.peers.report import table as peers_table
from bench.peers.rounds import measure as compare_peers
from bench.peers.this import THIS_RELAY
from bench.pull import pull
from bench.stand import Stand, stand
from relay.auth import Tokens
from relay.cli.visible import Console

PAIRS = 100
PACE = 200.0
FEW_IN_FLIGHT = 20  # enough to keep a relay busy that takes one message a call, and few enough to see the end
SHARE_OF_MAXIMUM = 0.7

Say = Callable[[str], None]


async def whole_life(there: Stand, batch: int, seconds: float, in_flight: int = IN_FLIGHT) -> dict[str, float]:
    """Throughput flat out, and the processor time a message costs the instances and the server."""
    load = Load(there.ports, Tokens(there.settings), PAIRS, batch, in_flight)
    await load.open()
    relay_before, redis_before = there.cpu_s()
    before = load.completed
    rate = await load.flat_out(seconds)
    relay_after, redis_after = there.cpu_s()
    messages = load.completed - before
    load.close()
    return {
        "msgs_s": rate,
        "relay_us": (relay_after - relay_before) / messages * 1e6,
        "redis_us": (redis_after - redis_before) / messages * 1e6,
    }


async def latencies(there: Stand, per_s: float, seconds: float) -> dict[str, float]:
    load = Load(there.ports, Tokens(there.settings), PAIRS, 1)
    await load.open()
    found = await load.paced(per_s, seconds)
    load.close()
    return {
        f"{name}_p{share}_ms": percentile(values, share / 100)
        for name, values in (("accepted", found.accepted_ms), ("delivered", found.delivered_ms))
        for share in (50, 99)
    }


def measure(seconds: float, say: Say) -> dict[str, float]:
    """Everything, on a stand of its own; `say` hears what is being done."""
    results: dict[str, float] = {}
    with stand() as there, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        say("the ceiling: full batches, no WebSocket")
        results["ceiling_msgs_s"] = ceiling(there.settings, there.url, seconds)
        say(f"whole life, {BATCH} messages a frame")
        batched = runner.run(whole_life(there, BATCH, seconds))
        results |= {
            "batched_msgs_s": batched["msgs_s"],
            "relay_us": batched["relay_us"],
            "redis_us": batched["redis_us"],
        }
        say("whole life, one message a frame")
        single = runner.run(whole_life(there, 1, seconds))
        results |= {"single_msgs_s": single["msgs_s"], "single_relay_us": single["relay_us"]}
        say("pulling over HTTP, lease 100 and settle 100")
        results["pull_msgs_s"] = runner.run(pull(there, seconds))
        say(f"latency at {PACE:.0f} msg/s")
        results |= runner.run(latencies(there, PACE, seconds))
        busy = max(1.0, SHARE_OF_MAXIMUM * results["single_msgs_s"])
        say(f"latency at {busy:.0f} msg/s, 70 % of the maximum")
        results |= {f"busy_{name}": value for name, value in runner.run(latencies(there, busy, seconds)).items()}
    with stand(module="bench.one_per_call") as there, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        say("whole life, one message a call")
        results["one_per_call_msgs_s"] = runner.run(whole_life(there, 1, seconds, FEW_IN_FLIGHT))["msgs_s"]
    return results


ROWS = (
    ("ceiling: the scripts with full batches, no WebSocket", "ceiling_msgs_s", "msg/s"),
    (f"whole life, {BATCH} messages a frame", "batched_msgs_s", "msg/s"),
    ("whole life, one message a frame", "single_msgs_s", "msg/s"),
    ("whole life, one message a call", "one_per_call_msgs_s", "msg/s"),
    ("pulled over HTTP, 100 a lease", "pull_msgs_s", "msg/s"),
    ("processor time of the relay a message", "relay_us", "µs"),
    ("processor time of Redis a message", "redis_us", "µs"),
    ("accepted, p50 at 200 msg/s", "accepted_p50_ms", "ms"),
    ("accepted, p99 at 200 msg/s", "accepted_p99_ms", "ms"),
    ("delivered, p50 at 200 msg/s", "delivered_p50_ms", "ms"),
    ("delivered, p99 at 200 msg/s", "delivered_p99_ms", "ms"),
    ("delivered, p50 at 70 % of the maximum", "busy_delivered_p50_ms", "ms"),
    ("delivered, p99 at 70 % of the maximum", "busy_delivered_p99_ms", "ms"),
)


def table(results: dict[str, float]) -> Table:
    found = _measured(ROWS, results)
    found.add_row("whole life ÷ ceiling", f"{results['batched_msgs_s'] / results['ceiling_msgs_s']:.2f}", "")
    found.add_row("pulled ÷ whole life", f"{results['pull_msgs_s'] / results['batched_msgs_s']:.2f}", "")
    found.add_row("whole life ÷ one a call", f"{results['batched_msgs_s'] / results['one_per_call_msgs_s']:.1f}", "")
    return found


def _measured(rows: tuple[tuple[str, str, str], ...], results: dict[str, float]) -> Table:
    found = Table(title="100 senders, 100 recipients, 256-byte payloads, window 100, two instances, fsync")
    found.add_column("what")
    found.add_column("measured", justify="right")
    found.add_column("unit")
    for what, name, unit in rows:
        found.add_row(what, f"{results[name]:,.0f}" if unit == "msg/s" else f"{results[name]:.2f}", unit)
    found.add_section()
    return found


CLIENT_ROWS = (
    (f"whole life, {BATCH} messages a frame, bare sockets", "batched_msgs_s", "msg/s"),
    ("whole life through the Python client, outbox in memory", "client_msgs_s", "msg/s"),
    ("sends into an outbox on disk", "disk_sends_s", "msg/s"),
)


def client_table(results: dict[str, float]) -> Table:
    found = _measured(CLIENT_ROWS, results)
    found.add_row("client ÷ bare sockets", f"{results['client_share']:.2f}", "")
    return found


def bench(seconds: float, as_json: bool, with_client: bool = False) -> None:
    """Measures and prints: one table, or one JSON object."""
    with _progress() as say:
        results = client.measure(seconds, say) if with_client else measure(seconds, say)
    if as_json:
        _print_json({name: round(value, 3) for name, value in results.items()})
    else:
        Console().print(client_table(results) if with_client else table(results))


def compare(peers: Sequence[Peer], seconds: float, rounds: int, as_json: bool, chart: Path | None) -> None:
    """The same work on each of these, in turn: one table, or one JSON object, and a chart if one is wanted."""
    with _progress() as say:
        found = compare_peers(peers, seconds, rounds, say)
    if chart:
        chart.write_text(draw(found, own=THIS_RELAY.name))
    if as_json:
        _print_json({name: {figure: round(value, 3) for figure, value in of.items()} for name, of in found.items()})
    else:
        Console().print(peers_table(found))


@contextmanager
def _progress() -> Iterator[Say]:
    """Says on stderr what is being done."""
    console = Console(stderr=True)
    with console.status("starting") as status:

        def say(what: str) -> None:
            console.print(f"· {what}")
            status.update(f"measuring {what} …")

        yield say


def _print_json(results: dict[str, Any]) -> None:
    sys.stdout.write(orjson.dumps(results).decode() + "\n")
