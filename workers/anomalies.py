"""Anomalies: gathers the input of the rules, round by round."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from relay.settings import Settings
from relay.store.agents.agents import Description
from relay.store.store import Store
from relay.store.watching.anomalies import Anomaly
from relay.store.watching.snapshots import ALL_TENANTS
from relay.store.witness import Regress
from workers import rules
from workers.tallies import Notable, Tallies, TenantTally

HOUR_MS = 3_600_000
MOST_REMEMBERED = 10_000  # entries that failed lately
MOST_LOOKED_UP = 50  # of them, in one round
MOST_FOUND = 100  # anomalies of a tenant in one round
MOST_SENDERS = 50  # whose receipts are counted in one round
UNANSWERED = 2  # probes in a row: one may be under way

Found = list[Anomaly | None]
Key = tuple[str, str]  # agent, entry


class AnomalyWatch:
    """Remembers between rounds what no single round shows."""

    def __init__(self) -> None:
        self._failed: dict[Key, list[int]] = {}  # when the deliveries of an entry failed, within the last hour
        self._overdue: dict[Key, Notable] = {}  # holds that were ended because their time was over
        self._depths: dict[str, deque[int]] = {}  # of each tenant, in the last rounds
        self._probes: dict[str, tuple[str, int]] = {}  # instance -> what it should answer, how often it did not
        self._round = 0

    async def look(
        self,
        store: Store,
        now_ms: int,
        tallies: Tallies,
        agents: dict[str, list[Description]],
        messages: dict[str, int],
    ) -> dict[str, list[Anomaly]]:
        """By tenant, what looks wrong now. `messages` is how many each tenant has."""
        found: dict[str, Found] = {ALL_TENANTS: await self._of_store(store, tallies)}
        for tenant in {*agents, *tallies.tenants, *messages}:
            tally, own = tallies.tenants.get(tenant) or TenantTally(), agents.get(tenant, [])
            found[tenant] = [
                *of_tally(store.settings, tenant, tally),
                *of_mailboxes(store.settings, own, tally, now_ms),
                *self._of_failures(store.settings, tally, now_ms),
                self._of_depth(store.settings, tenant, messages.get(tenant, 0)),
                *await _of_holds(store, own),
                *await _of_attempts(store, tally),
                *await _of_receipts(store, tenant, tally),
            ]
        for late in await _late_holds(store, now_ms):
            if late is not None:
                found.setdefault(late.agent.partition("/")[0], []).append(late)
        self._round += 1
        raised = {tenant: once_each(one for one in some if one is not None) for tenant, some in found.items()}
        return {tenant: some[:MOST_FOUND] for tenant, some in raised.items() if some and tenant}

    def _of_failures(self, settings: Settings, tally: TenantTally, now_ms: int) -> Iterator[Anomaly | None]:
        """Entries in a redelivery loop, and entries that another session took over."""
        for event in tally.notable:
            key = event.agent, event.entry
            if event.kind in ("nacked", "overdue", "released"):
                times = [at_ms for at_ms in self._failed.pop(key, []) if now_ms - at_ms < HOUR_MS] + [now_ms]
                self._failed[key] = times
                yield rules.redelivery_loop(event, len(times), settings.anomaly_redeliveries)
            if event.kind == "overdue":
                self._overdue[key] = event
            elif event.kind == "taken" and key in self._overdue:
                yield rules.lock_stolen(self._overdue.pop(key), event.who)
        _forget_oldest(self._failed)
        _forget_oldest(self._overdue)

    def _of_depth(self, settings: Settings, tenant: str, messages: int) -> Anomaly | None:
        depths = self._depths.setdefault(tenant, deque(maxlen=rules.GROWING_SNAPSHOTS))
        depths.append(messages)
        if not any(depths):
            del self._depths[tenant]
        return rules.queue_growing(tenant, list(depths), settings.anomaly_growing_messages)

    async def _of_store(self, store: Store, tallies: Tallies) -> Found:
        skew_ms = store.settings.anomaly_clock_skew_ms
        found: Found = [rules.clock_skew(*clock, skew_ms) for clock in tallies.clocks.items()]
        regresses = await store.meta.read_regresses()
        found += [rules.store_regressed(*regress) for regress in regresses.items() if _is_new(regress[1], store)]
        return found + await self._probe(store)

    async def _probe(self, store: Store) -> Found:
        """Tells every instance something on the way of wakes, and sees whether it answered the time before."""
        shard, now_ms = self._round % store.keys.shards, store.clock.now_ms()
        alive = [name for name, until_ms in (await store.presence.instances(shard)).items() if until_ms > now_ms]
        found: Found = []
        probes: dict[str, tuple[str, int]] = {}
        for instance in alive:
            token, unanswered = self._probes.get(instance, ("", 0))
            is_answered = not token or await store.holds.answered(instance) == token
            unanswered = 0 if is_answered else unanswered + 1
            found.append(rules.wake_path_broken(instance, unanswered, UNANSWERED))
            probes[instance] = await store.holds.probe(shard, instance), unanswered
        self._probes = probes
        return found


def _is_new(regress: Regress, store: Store) -> bool:
    return store.clock.now_ms() - regress.at_ms < HOUR_MS


def _forget_oldest(memory: dict[Key, Any]) -> None:
    while len(memory) > MOST_REMEMBERED:
        del memory[next(iter(memory))]


def once_each(found: Iterable[Anomaly]) -> list[Anomaly]:
    """The latest with each id: an agent whose every message fails is one anomaly, which tells how many they are."""
    by_id: dict[str, list[Anomaly]] = {}
    for anomaly in found:
        by_id.setdefault(anomaly.id, []).append(anomaly)
    for same in by_id.values():
        messages = len({anomaly.entry for anomaly in same})
        if messages > 1:
            same[-1].evidence["messages"] = messages
    return [same[-1] for same in by_id.values()]


def of_tally(settings: Settings, tenant: str, tally: TenantTally) -> Iterator[Anomaly | None]:
    """Anomalies in the event counts of one round."""
    reasons = {event.agent: event.reason for event in tally.notable if event.kind == "dead"}
    for name, agent in tally.agents.items():
        address = f"{tenant}/{name}"
        yield rules.bulk_send(address, agent.sent, settings.anomaly_bulk_send)
        limits = settings.max_payload_bytes, settings.anomaly_large_payload_share
        yield rules.large_payload(address, agent.largest_bytes, agent.largest_id, *limits)
        yield rules.dead_lettered(address, agent.dead, reasons.get(address, ""))
        yield rules.cleared(address, agent.cancelled, settings.anomaly_cleared)
        yield rules.expired_unread(address, agent.expired_unread)
    for who, session in tally.sessions.items():
        address = f"{tenant}/{session.agent}"
        yield rules.burst_take(who, session, address, settings.anomaly_burst_take)
        yield rules.flash(who, session, address, settings.anomaly_flash_ms, settings.anomaly_flash_acks)


def of_mailboxes(
    settings: Settings, agents: list[Description], tally: TenantTally, now_ms: int
) -> Iterator[Anomaly | None]:
    """Anomalies in the depth and age of mailboxes."""
    for agent in agents:
        limit = agent.max_messages or settings.mailbox_max_messages
        known = tally.agents.get(agent.address.partition("/")[2])
        refused = known.refused_full if known else 0
        full = rules.mailbox_full(agent.address, agent.depth, limit, refused)
        yield full
        if full is None:
            yield rules.mailbox_nearly_full(agent.address, agent.depth, limit, settings.anomaly_nearly_full_share)
        if agent.oldest_ms is not None:
            age_s = (now_ms - agent.oldest_ms) / 1_000
            yield rules.stale(agent.address, age_s, agent.waiting, agent.why, settings.anomaly_stale_s)


async def _of_holds(store: Store, agents: list[Description]) -> Found:
    settings = store.settings
    holding = {agent.address: agent for agent in agents if agent.held}
    found: Found = []
    for address, holds in (await store.holds.of(list(holding))).items():
        windows = {session.name: session.window for session in holding[address].sessions}
        for held in holds:
            window = windows.get(held.session)
            found.append(rules.stuck_consumer(address, held, window, settings.anomaly_stuck_s))
            found.append(rules.long_processing(address, held, settings.anomaly_long_processing_s))
    return found


async def _of_attempts(store: Store, tally: TenantTally) -> Found:
    """Messages that failed in this round, and how many attempts they have left."""
    failed = {(event.agent, event.id): event for event in tally.notable if event.kind in ("nacked", "overdue")}
    found: Found = []
    for event in list(failed.values())[:MOST_LOOKED_UP]:
        status = await store.lookup.where(event.sender, event.agent, event.id)
        if status is not None and status.waiting is not None:
            found.append(rules.near_dead(event, status.attempt, status.max_attempts))
    return found


async def _of_receipts(store: Store, tenant: str, tally: TenantTally) -> Found:
    senders = [f"{tenant}/{name}" for name, agent in tally.agents.items() if agent.sent][:MOST_SENDERS]
    counts = await store.observing.receipts_waiting(senders)
    most = store.settings.anomaly_receipts
    return [rules.receipts_piling_up(sender, count, most) for sender, count in zip(senders, counts, strict=True)]


async def _late_holds(store: Store, now_ms: int) -> Found:
    found: Found = []
    for shard in range(store.keys.shards):
        for late in await store.holds.late(shard, now_ms):
            holding = await store.lookup.holder(late.address, late.entry)
            if holding is not None:
                holder, since_ms = holding
                held_s, timeout_s = (now_ms - since_ms) / 1_000, (late.until_ms - since_ms) / 1_000
                found.append(rules.zombie(late.address, holder, late.entry, held_s, timeout_s))
    return found
