"""The whole examination, from the server to the last mailbox."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace

from relay.doctor import data_checks, machine_checks
from relay.doctor.finding import Finding
from relay.doctor.server_checks import examine_server
from relay.server.open_files import most_open_files
from relay.store import readable
from relay.store.store import Store

MOST_MAILBOXES = 20_000
MAILBOXES_AT_ONCE = 50


@dataclass(slots=True)
class Examined:
    """How much was looked at."""

    mailboxes: int = 0
    left_out: bool = False  # there are more mailboxes than were looked at
    config_hidden: bool = False  # the server does not tell its settings: what follows from them was not looked at


async def examine(
    store: Store, every_s: Mapping[str, float], examined: Examined, most_mailboxes: int = MOST_MAILBOXES
) -> AsyncIterator[Finding]:
    """All findings. It only reads. Raises StoreUnavailable."""
    for finding in machine_checks.open_files(store.settings, most_open_files()):
        yield finding
    servers = await store.checkup.servers()
    for facts in servers:
        examined.config_hidden = examined.config_hidden or facts.config is None
        for finding in examine_server(facts, store.settings):
            yield _of_node(finding, facts.name) if store.checkup.is_cluster else finding
    if any(facts.info.get("role") == "slave" for facts in servers):
        return
    found = await store.checkup.meta()
    wrong = list(data_checks.meta(found, store.settings))
    for finding in wrong:
        yield finding
    if wrong or not found:
        return  # the data are not for this relay, or there are none
    now_ms, left_out_before = max(facts.now_ms for facts in servers), Counter(readable.left_out)
    rounds, failing = await store.workers.rounds(), await store.workers.failing()
    leased = await store.workers.leased(every_s)
    for finding in data_checks.workers(every_s, rounds, leased, failing, now_ms):
        yield finding
    async for finding in _shards(store, now_ms, examined, most_mailboxes):
        yield finding
    for key, count in (readable.left_out - left_out_before).items():
        yield data_checks.unreadable(key, count)


def _of_node(finding: Finding, name: str) -> Finding:
    """Puts the name of a Cluster node into a finding."""
    host, _, port = name.rpartition(":")
    command = f"redis-cli -h {host} -p {port}"
    return replace(finding, what=f"{name}: {finding.what}", fix=finding.fix.replace("redis-cli", command))


async def _shards(store: Store, now_ms: int, examined: Examined, most: int) -> AsyncIterator[Finding]:
    alive: set[str] = set()
    for shard in range(store.keys.shards):
        facts = await store.checkup.shard(shard, now_ms)
        alive |= set(facts.alive_instances)
        for finding in data_checks.shard(facts, store.keys, store.settings, now_ms):
            yield finding
        await store.checkup.look_through(shard)
        async for key, entry in store.checkup.lost_ids(shard):
            yield data_checks.lost_id(key, entry, store.keys.ids(shard))
        async for addresses in store.checkup.addresses(shard):
            looked_at = addresses[: most - examined.mailboxes]
            examined.mailboxes += len(looked_at)
            examined.left_out = examined.left_out or len(looked_at) < len(addresses)
            async for finding in _mailboxes(store, shard, looked_at):
                yield finding
    for finding in data_checks.deaf(await store.checkup.deaf(alive)):
        yield finding


async def _mailboxes(store: Store, shard: int, addresses: list[str]) -> AsyncIterator[Finding]:
    for start in range(0, len(addresses), MAILBOXES_AT_ONCE):
        some = addresses[start : start + MAILBOXES_AT_ONCE]
        faults = await asyncio.gather(*(store.checkup.mailbox(address) for address in some))
        dead = await asyncio.gather(*(store.checkup.dead_letters(address) for address in some))
        for found, count in zip(faults, dead, strict=True):
            for finding in data_checks.mailbox(found, store.keys.box(found.address), store.keys.ids(shard)):
                yield finding
            for finding in data_checks.dead_letters(found.address, count, store.settings):
                yield finding
