"""Checks of the data: one small function per question, on what a checkup has read."""

from collections.abc import Iterator, Mapping, Set

from relay.doctor.finding import Finding, error, warning
from relay.settings import Settings
from relay.store.keys import SCHEMA, Keys, may_share
from relay.store.watching.checkup import MailboxFaults, ShardFacts
from relay.store.worker_leases import Round

LATE_MS = 60_000  # what should have happened this long ago is not just about to
ARCHIVE_LAG_MS = 3_600_000
ROUNDS_MISSED = 3


def meta(found: Mapping[str, str], settings: Settings) -> Iterator[Finding]:
    if not found:
        return
    if not may_share(found.get("schema", "")):
        yield error(
            "schema",
            f"the data have schema {found.get('schema')}, this relay has {SCHEMA}: no instance starts",
            "use the version of the relay that made the data, or another RELAY_REDIS_URL",
        )
    if found.get("shards") != str(settings.shards):
        yield error(
            "shards",
            f"the data have {found.get('shards')} shards, RELAY_SHARDS is {settings.shards}: no instance starts",
            f"RELAY_SHARDS={found.get('shards')}",
        )


def workers(
    every_s: Mapping[str, float],
    rounds: Mapping[str, Round],
    leased: Set[str],
    failing: Mapping[str, str],
    now_ms: int,
) -> Iterator[Finding]:
    """`every_s`: how often each duty should be done; `leased`: what a process does now, perhaps for the first time."""
    for name, reason in failing.items():
        yield error("worker_failing", f"the worker {name} cannot do its duty: {reason}", f"relay workers --only {name}")
    for name, period_s in every_s.items():
        last = rounds.get(name)
        late_ms = ROUNDS_MISSED * period_s * 1_000 + LATE_MS
        if last is None and name in leased:
            continue
        if last is None:
            yield error("worker_missing", f"nobody has ever done the duty {name}", "relay workers")
        elif now_ms - last.at_ms > late_ms:
            ago_s = (now_ms - last.at_ms) // 1_000
            yield error("worker_missing", f"nobody has done the duty {name} for {ago_s} s", "relay workers")


def shard(facts: ShardFacts, keys: Keys, settings: Settings, now_ms: int) -> Iterator[Finding]:
    """What is overdue in one shard."""
    yield from _late(facts, keys, settings, now_ms)
    if facts.unreadable:
        yield warning(
            "records_unreadable",
            f"{facts.unreadable} records of shard {facts.shard} could not be read and are dead letters now: the log "
            "line record_unreadable names each, and this is said until the count is removed",
            f"redis-cli HDEL '{keys.totals(facts.shard)}' unreadable",
        )
    if facts.dead_instances:
        names = ", ".join(sorted(facts.dead_instances))
        yield warning(
            "dead_instances",
            f"shard {facts.shard} still counts on {names}, which ended without a word: the reaper does not run",
            "relay workers --only reaper",
        )
    if facts.archived_ms is not None and facts.last_event_ms is not None:
        behind_ms = facts.last_event_ms - facts.archived_ms
        if behind_ms > ARCHIVE_LAG_MS:
            yield warning(
                "archive_lag",
                f"the archive is {behind_ms // 60_000} minutes behind in shard {facts.shard}",
                "relay spark archive --out DIR",
            )


def _late(facts: ShardFacts, keys: Keys, settings: Settings, now_ms: int) -> Iterator[Finding]:
    if facts.overdue and facts.oldest_due_ms is not None and now_ms - facts.oldest_due_ms > LATE_MS:
        yield error(
            "overdue",
            f"{facts.overdue} entries of shard {facts.shard} wait for what was due up to "
            f"{(now_ms - facts.oldest_due_ms) // 1_000} s ago: holds and delays do not end",
            "relay workers --only overdue",
        )
    swept_after_ms = int(settings.message_ttl_s * 1_000 + 2 * settings.sweep_every_s * 1_000) + LATE_MS
    if facts.oldest_waiting_ms is not None and now_ms - facts.oldest_waiting_ms > swept_after_ms:
        yield error(
            "unswept",
            f"shard {facts.shard} has messages that are over their TTL: the sweeper does not run",
            "relay workers --only sweeper",
        )
    if facts.oldest_outbox_ms is not None and now_ms - facts.oldest_outbox_ms > LATE_MS:
        yield error(
            "outbox",
            f"receipts have waited in {keys.outbox(facts.shard)} for {(now_ms - facts.oldest_outbox_ms) // 1_000} s",
            "relay workers --only receipts",
        )


def deaf(instances: list[str]) -> Iterator[Finding]:
    for instance in instances:
        yield error(
            "deaf",
            f"the instance {instance} is alive and does not listen for wakes: its agents wait for its next look",
            "restart that instance; redis-cli PUBSUB CHANNELS 'relay:*wake:*' shows who listens",
        )


def mailbox(faults: MailboxFaults, box: str, entries_box: str) -> Iterator[Finding]:
    """Inconsistencies in one mailbox; `box` is its key, `entries_box` its index."""
    address = faults.address
    if faults.ghosts:
        yield error(
            "ghosts",
            f"{_some(faults.ghosts)} of {address} are held and do not exist: a window of that size stays taken",
            f"redis-cli XACK '{box}' agent {' '.join(faults.ghosts[:10])}",
        )
    if faults.stranded:
        yield error(
            "stranded",
            f"{_some(faults.stranded)} of {address} are stored and nobody will ever be given them",
            f"redis-cli XGROUP SETID '{box}' agent {_before(faults.stranded[0])}, while no session serves it",
        )
    if faults.unindexed:
        yield error(
            "unindexed",
            f"{_some(faults.unindexed)} of {address} are not in the index: sent again, they are stored twice",
            f"redis-cli HGETALL '{entries_box}'; sessions can still ack them",
        )
    if faults.unreadable:
        yield warning(
            "unreadable",
            f"{_some(faults.unreadable)} of {address} cannot be read: the next take from it sets them aside",
            f"redis-cli XRANGE '{box}' {faults.unreadable[0]} {faults.unreadable[0]} shows the first",
        )
    if faults.orphaned:
        yield error(
            "orphaned",
            f"{_some(faults.orphaned)} of {address} are held by a session that is not there",
            f"redis-cli XCLAIM '{box}' agent '~ready' 0 {' '.join(faults.orphaned[:10])} JUSTID",
        )
    if faults.leaked:
        yield warning(
            "leaked_consumers",
            f"{_some(faults.leaked)} of {address} have no session: each costs memory and time",
            f"redis-cli XGROUP DELCONSUMER '{box}' agent {faults.leaked[0]}",
        )


def dead_letters(address: str, count: int, settings: Settings) -> Iterator[Finding]:
    if count >= settings.dead_max_messages:
        yield warning(
            "dead_letters_full",
            f"the dead-letter box of {address} is full ({count}): what fails now stays in its mailbox, parked",
            f"relay dead {address} revive --all, or relay dead {address} drop --all",
        )


def lost_id(key: str, entry: str, ids_key: str) -> Finding:
    tenant, to, sender, message_id = key.split("\t")
    return error(
        "lost_ids",
        f"{message_id} from {tenant}/{sender} to {tenant}/{to} is in the index as {entry} and in no mailbox: "
        "sent again, it is refused as a repetition",
        f"redis-cli HDEL '{ids_key}' {quoted(key)}",
    )


def unreadable(key: str, count: int) -> Finding:
    return warning(
        "unreadable",
        f"{count} records of {key} cannot be read: they are left out of everything",
        f"redis-cli TYPE {quoted(key)}, then HSCAN, ZSCAN or XRANGE; delete what is broken",
    )


def quoted(text: str) -> str:
    """For a shell: a sender chose the id, and the line must not do more than it says."""
    return "$'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\t", "\\t") + "'"


def _some(names: list[str]) -> str:
    return f"{len(names)} entries ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"


def _before(stream_id: str) -> str:
    """The id just before this one."""
    ms, _, number = stream_id.partition("-")
    return f"{ms}-{int(number) - 1}" if int(number) else f"{int(ms) - 1}-18446744073709551615"
