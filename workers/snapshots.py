"""Snapshots: combines the sums of events and the totals of the store into a tenant's snapshot. No I/O."""

from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest

from relay.store.agents.agents import Description
from relay.store.watching.depth import Depth
from relay.store.watching.snapshots import BusyAgent, Ranking, ShardLoad, Snapshot
from workers.tallies import AgentTally, ShardTally, Tallies, TenantTally

MOST_TENANTS = 1_000  # that get a snapshot in one round
RANKED = 100  # agents in a ranking

ORDERS: dict[str, Callable[[BusyAgent], float]] = {
    "depth": lambda agent: agent.depth,
    "oldest": lambda agent: agent.oldest_age_s or 0,
    "dead": lambda agent: agent.dead,
    "rate": lambda agent: agent.accepted_per_s + agent.acked_per_s + agent.sent_per_s,
}

Sums = Mapping[str, int]  # what a tenant has: messages, bytes, dead, online


def worth_a_snapshot(tallies: Tallies, sums: Mapping[str, Sums]) -> list[str]:
    """Tenants where something happened or something waits; the busiest, if they are too many."""
    activity = {tenant: of_tenant.get("messages", 0) for tenant, of_tenant in sums.items()}
    for tenant, tally in tallies.tenants.items():
        activity[tenant] = activity.get(tenant, 0) + round(sum(tally.counts.values()))
    busy = [tenant for tenant, much in activity.items() if tenant and much]
    return nlargest(MOST_TENANTS, busy, key=lambda tenant: activity[tenant])


def snapshot_of(
    at_ms: int, seconds: float, tally: TenantTally, sums: Sums, oldest_ms: int | None, estimated: bool
) -> Snapshot:
    counts = {kind: round(count) for kind, count in sorted(tally.counts.items())}
    return Snapshot(
        at_ms=at_ms,
        seconds=round(seconds, 3),
        counts=counts,
        accepted_per_s=_per_s(tally.counts.get("accepted", 0), seconds),
        acked_per_s=_per_s(tally.counts.get("acked", 0), seconds),
        messages=max(0, sums.get("messages", 0)),
        bytes=max(0, sums.get("bytes", 0)),
        dead=max(0, sums.get("dead", 0)),
        online=max(0, sums.get("online", 0)),
        oldest_age_s=_age_s(oldest_ms, at_ms),
        taken_ms=tally.taken_ms.percentiles(),
        acked_ms=tally.acked_ms.percentiles(),
        estimated=estimated,
    )


def oldest_of(agents: Iterable[Description]) -> int | None:
    return min((agent.oldest_ms for agent in agents if agent.oldest_ms is not None), default=None)


def ranking_of(at_ms: int, seconds: float, tally: TenantTally, agents: Iterable[Description]) -> Ranking:
    """The first agents of a tenant by depth, by the age of their oldest message, by dead letters and by rate."""
    busy = [_busy(agent, tally.agents.get(agent.address.partition("/")[2]), seconds, at_ms) for agent in agents]
    by = {name: nlargest(RANKED, filter(order, busy), key=order) for name, order in ORDERS.items()}
    names = {name: [agent.agent for agent in ranked] for name, ranked in by.items()}
    agents_named = {agent.agent: agent for ranked in by.values() for agent in ranked}
    return Ranking(at_ms=at_ms, by=names, agents=agents_named)


def _busy(agent: Description, tally: AgentTally | None, seconds: float, at_ms: int) -> BusyAgent:
    done = tally or AgentTally()
    return BusyAgent(
        agent=agent.address,
        depth=agent.depth,
        oldest_age_s=_age_s(agent.oldest_ms, at_ms),
        dead=agent.dead,
        accepted_per_s=_per_s(done.accepted, seconds),
        acked_per_s=_per_s(done.acked, seconds),
        sent_per_s=_per_s(done.sent, seconds),
    )


def shards_of(at_ms: int, seconds: float, tallies: Tallies, depths: list[Depth]) -> list[ShardLoad]:
    """Those where something happened or something waits."""
    loads = []
    for shard, depth in enumerate(depths):
        done = tallies.shards.get(shard)
        if done is not None or depth.messages:
            done = done or ShardTally()
            age_s = _age_s(depth.oldest_ms, at_ms)
            rates = _per_s(done.accepted, seconds), _per_s(done.acked, seconds)
            loads.append(ShardLoad(shard, depth.messages, age_s, *rates))
    return loads


def whole_of(tallies: Tallies) -> TenantTally:
    """All tenants together."""
    whole = TenantTally()
    for tally in tallies.tenants.values():
        for kind, count in tally.counts.items():
            whole.counts[kind] += count
        whole.taken_ms.merge(tally.taken_ms)
        whole.acked_ms.merge(tally.acked_ms)
    return whole


def _per_s(count: float, seconds: float) -> float:
    return round(count / seconds, 2)


def _age_s(since_ms: int | None, at_ms: int) -> float | None:
    return None if since_ms is None else max(0, at_ms - since_ms) / 1_000
