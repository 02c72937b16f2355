"""The observer: reads the event logs once, writes snapshots, and reports anomalies."""

import logging
from collections import Counter
from functools import partial

from relay.store.agents.agents import Description
from relay.store.readable import readable
from relay.store.record.events import columns_of
from relay.store.store import Store
from relay.store.watching.anomalies import Anomaly
from relay.store.watching.observing import Places, ReadMark
from relay.store.watching.snapshots import ALL_TENANTS, Ranking
from workers.anomalies import AnomalyWatch
from workers.ends import EndsLog
from workers.snapshots import oldest_of, ranking_of, shards_of, snapshot_of, whole_of, worth_a_snapshot
from workers.tallies import Tallies, TenantTally

log = logging.getLogger(__name__)

MOST_BYTES = 8 * 2**20  # of all logs in one round: what is more is estimated
OLDEST_OF_SHARD = 50  # mailboxes that are looked at because they have waited longest
BUSIEST_OF_SHARD = 50  # and because the most happened there
MOST_SESSIONS = 10  # of an agent that are looked at


class Observer:
    """Runs round by round. Between rounds it remembers what the rules of anomalies need."""

    def __init__(self) -> None:
        self._watch = AnomalyWatch()

    async def observe(self, store: Store, _shard: int, now_ms: int) -> int:
        """One round over the whole store. Returns how many events were read."""
        seconds, tallies, count = await _read_logs(store, now_ms)
        sums = await store.roster.sums_of_all()
        agents = await _worth_a_look(store, tallies)
        for tenant in worth_a_snapshot(tallies, sums):
            tally, own = tallies.tenants.get(tenant) or TenantTally(), agents.get(tenant, [])
            snapshot = snapshot_of(now_ms, seconds, tally, sums.get(tenant, {}), oldest_of(own), tallies.is_estimate)
            await store.snapshots.write(tenant, snapshot, ranking_of(now_ms, seconds, tally, own))
        await _write_whole(store, now_ms, seconds, tallies, sums)
        messages = {tenant: of_tenant.get("messages", 0) for tenant, of_tenant in sums.items()}
        found = await self._watch.look(store, now_ms, tallies, agents, messages)
        for tenant, anomalies in found.items():
            for anomaly in await store.anomalies.raise_all(tenant, anomalies, now_ms):
                _log_anomaly(anomaly)
        return count


def _log_anomaly(anomaly: Anomaly) -> None:
    about = {"agent": anomaly.agent, "session": anomaly.session, "id": anomaly.message, "instance": anomaly.instance}
    fields = {"kind": anomaly.kind, "severity": anomaly.severity} | {
        name: value for name, value in about.items() if value
    }
    log.log(logging.INFO if anomaly.severity == "info" else logging.WARNING, "anomaly", extra=fields)


async def _write_whole(
    store: Store, now_ms: int, seconds: float, tallies: Tallies, sums: dict[str, dict[str, int]]
) -> None:
    """The snapshot of all tenants together."""
    depths = [await store.depths.of(shard) for shard in range(store.keys.shards)]
    totals: Counter[str] = Counter()
    for of_tenant in sums.values():
        totals.update(of_tenant)
    oldest_ms = min((depth.oldest_ms for depth in depths if depth.oldest_ms is not None), default=None)
    whole = snapshot_of(now_ms, seconds, whole_of(tallies), totals, oldest_ms, tallies.is_estimate)
    shards = shards_of(now_ms, seconds, tallies, depths)
    await store.snapshots.write(ALL_TENANTS, whole, Ranking(at_ms=now_ms, shards=shards))


async def _read_logs(store: Store, now_ms: int) -> tuple[float, Tallies, int]:
    """Reads the logs since the previous round. Returns the seconds covered, the sums, and the number of events read."""
    tallies, ends, count = Tallies(), EndsLog(), 0
    before = await store.observing.places()
    since_ms = before.at_ms if before else now_ms - round(store.settings.snapshot_every_s * 1_000)
    by_shard: dict[int, ReadMark] = {}
    for shard, reach in enumerate(await store.observing.reaches()):
        key = store.keys.events(shard)
        place = before.by_shard.get(shard) if before else ReadMark(f"{since_ms}-0", None)
        part = await store.observing.read(shard, place or ReadMark("0-0", 0), reach, MOST_BYTES // store.keys.shards)
        tallies.is_estimate |= part.weight > 1
        for logged_ms, fields in part.logged:
            for columns in columns_of(fields):
                count += 1
                readable(key, [columns], partial(_note, tallies, ends, shard, logged_ms, part.weight))
        by_shard[shard] = ReadMark(reach.last, reach.added)
    ends.close()
    await store.observing.keep_places(Places(now_ms, by_shard))
    return max(now_ms - since_ms, 1) / 1_000, tallies, count


def _note(tallies: Tallies, ends: EndsLog, shard: int, logged_ms: int, weight: float, columns: list[str]) -> None:
    tallies.add(shard, logged_ms, columns, weight)
    ends.note(shard, columns)


async def _worth_a_look(store: Store, tallies: Tallies) -> dict[str, list[Description]]:
    """By tenant, the agents that have waited longest and those where the most happened."""
    names: set[str] = set()
    for shard, busy in enumerate(_busiest(store, tallies)):
        names.update(await store.expiry.due_mailboxes(shard, store.clock.now_ms(), OLDEST_OF_SHARD))
        names.update(address for address, _ in busy.most_common(BUSIEST_OF_SHARD))
    by_tenant: dict[str, list[Description]] = {}
    for agent in await store.agents.describe(sorted(names), most_sessions=MOST_SESSIONS):
        by_tenant.setdefault(agent.address.partition("/")[0], []).append(agent)
    return by_tenant


def _busiest(store: Store, tallies: Tallies) -> list[Counter[str]]:
    """By shard, how much happened at each agent."""
    busy: list[Counter[str]] = [Counter() for _ in range(store.keys.shards)]
    for tenant, tally in tallies.tenants.items():
        for name, agent in tally.agents.items():
            if name:
                address = f"{tenant}/{name}"
                busy[store.keys.shard(address)][address] += round(agent.accepted + agent.acked + agent.sent) + 1
    return busy
