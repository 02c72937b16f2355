"""The rounds: every peer in turn, again and again, so that all of them see the same machine."""

import asyncio
import resource
from collections.abc import Callable, Sequence
from statistics import median

import uvloop

from bench.peers.lists import REDIS_LISTS
from bench.peers.mosquitto import MOSQUITTO, MOSQUITTO_1S
from bench.peers.nats import JETSTREAM
from bench.peers.peer import Peer, Site
from bench.peers.rabbitmq import RABBITMQ
from bench.peers.this import THIS_RELAY
from bench.peers.traffic import Traffic, spread

PEERS = (THIS_RELAY, MOSQUITTO, MOSQUITTO_1S, JETSTREAM, RABBITMQ, REDIS_LISTS)
FEW, MANY = 100, 10_000  # recipients
RATES = (200, 2_000, 5_000)

Say = Callable[[str], None]
Figures = dict[str, float]


def chosen(only: str) -> list[Peer]:
    """The peers of a list of names with commas; all of them if it is empty."""
    names = [name for name in only.split(",") if name]
    known = {peer.name: peer for peer in PEERS}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no such peer: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] or list(PEERS)


def measure(peers: Sequence[Peer], seconds: float, rounds: int, say: Say) -> dict[str, Figures]:
    """The median of each figure of each peer whose server is on this machine."""
    _allow_many_files()
    able = [peer for peer in peers if not peer.missing()]
    for peer in peers:
        if why := peer.missing():
            say(f"{peer.name} is left out: {why}")
    seen: dict[str, list[Figures]] = {peer.name: [] for peer in able}
    for number in range(1, rounds + 1):
        for peer in able:
            say(f"{peer.name}, round {number} of {rounds}")
            seen[peer.name].append(_round(peer, seconds, say))
    return {name: medians(found) for name, found in seen.items()}


def medians(found: Sequence[Figures]) -> Figures:
    """Of each figure over the rounds that have it."""
    names = dict.fromkeys(name for figures in found for name in figures)
    return {name: median([figures[name] for figures in found if name in figures]) for name in names}


def _round(peer: Peer, seconds: float, say: Say) -> Figures:
    """What could be measured: a peer that breaks under the load has no figure, and it is said why."""
    figures: Figures = {}
    for part in (_few, _many):
        try:
            with peer.start() as site, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(part(site, seconds, figures))
        except (OSError, TimeoutError) as error:
            say(f"{peer.name} has no figure: {error or type(error).__name__}")
    return figures


async def _few(site: Site, seconds: float, figures: Figures) -> None:
    await site.declare(range(FEW))
    traffic = Traffic(site, FEW)
    await traffic.open()
    await _flat_out(traffic, FEW, seconds, figures)
    for rate in RATES:
        flow, delivered_ms = await traffic.paced(rate, seconds)
        figures[f"p50_ms_at_{rate}"], figures[f"p99_ms_at_{rate}"] = spread(delivered_ms)
        figures[f"server_us_at_{rate}"] = flow.server_us
    traffic.close()


async def _many(site: Site, seconds: float, figures: Figures) -> None:
    empty = site.resident_bytes()
    await site.declare(range(MANY))
    declared = site.resident_bytes()
    traffic = Traffic(site, MANY)
    await traffic.open()
    figures["mailbox_bytes"] = (declared - empty) / MANY
    figures["connected_bytes"] = (site.resident_bytes() - empty) / MANY
    await _flat_out(traffic, MANY, seconds, figures)
    traffic.close()


async def _flat_out(traffic: Traffic, recipients: int, seconds: float, figures: Figures) -> None:
    for senders in ("paired", "random"):
        flow = await traffic.flat_out(seconds, is_random=senders == "random")
        figures[f"msgs_s_{senders}_{recipients}"] = flow.msgs_s
        figures[f"server_us_{senders}_{recipients}"] = flow.server_us
        figures[f"load_us_{senders}_{recipients}"] = flow.load_us


def _allow_many_files() -> None:
    """As many as the system lets this process and its servers have: ten thousand recipients are connected."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
