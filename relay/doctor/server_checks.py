"""Checks of the server: one small function per question, on what the server reports."""

import re
from collections.abc import Callable, Iterator

from relay.doctor.finding import Finding, error, warning
from relay.settings import Settings
from relay.store.watching.checkup import ServerFacts

MIB = 2**20
OLDEST_VERSION = (7, 0)
SKEW_MS = 1_000
NODE_BYTES = 1_024  # a larger node makes the first message of a mailbox cost that much
PUBSUB_BYTES = 8 * MIB  # what an instance may be behind with its wakes in a burst
REPLICA_BYTES = 64 * MIB
SPARE_CLIENTS = 100
NEARLY_FULL = 0.75
WASTED_BYTES = 256 * MIB
WASTED_SHARE = 1.5
IDLE_S = 10  # the relay pings every 3 s
BUSY_MS = 1_000
REPLICA_LAG_S = 10

Check = Callable[[ServerFacts, Settings], Iterator[Finding]]


def version(facts: ServerFacts, _: Settings) -> Iterator[Finding]:
    found = facts.info.get("redis_version", "0")
    if _numbers(found) < OLDEST_VERSION:
        yield error("version", f"the server is {found}; the relay needs 7.0", "install Redis or Valkey 7.0 or newer")


def eviction(facts: ServerFacts, _: Settings) -> Iterator[Finding]:
    policy = facts.info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield error(
            "eviction",
            f"maxmemory-policy is {policy}: a full server deletes mailboxes",
            _set("maxmemory-policy", "noeviction"),
        )


def memory(facts: ServerFacts, settings: Settings) -> Iterator[Finding]:
    used, limit = int(facts.info.get("used_memory", 0)), int(facts.info.get("maxmemory", 0))
    total = int(facts.info.get("total_system_memory", 0))
    room = limit or total
    share = used / room if room else 0.0
    of = "maxmemory" if limit else "the machine's memory"
    more = "let recipients drain their mail, shorten RELAY_MESSAGE_TTL_S, or give it more: " + _set(
        "maxmemory", str(2 * room)
    )
    if limit and share >= settings.store_max_memory_share:
        yield error("memory", f"{share:.0%} of maxmemory is used: sends are refused", more)
    elif share >= NEARLY_FULL:
        yield warning("memory", f"{share:.0%} of {of} is used", more)
    if total and limit > total:
        yield warning(
            "maxmemory",
            f"maxmemory is {limit} bytes, the machine has {total}: the system ends the server first",
            _set("maxmemory", str(total // 2)),
        )


def append_only(facts: ServerFacts, _: Settings) -> Iterator[Finding]:
    on = _config(facts, "appendonly")
    has_replica = int(facts.info.get("connected_slaves", 0)) > 0
    if on == "no":
        then = "until the next snapshot" if has_replica or _config(facts, "save") else "everything"
        yield error(
            "append_only",
            f"there is no append-only file: a restart loses {then}",
            _set("appendonly", "yes"),
        )
    elif on == "yes" and _config(facts, "appendfsync") == "no":
        yield warning(
            "append_only",
            "appendfsync is no: a power cut loses what the system had not written, up to 30 s",
            _set("appendfsync", "always"),
        )
    elif on == "yes" and _config(facts, "no-appendfsync-on-rewrite") == "yes":
        yield warning(
            "append_only",
            "no-appendfsync-on-rewrite is yes: while the log is rewritten, nothing is as durable as appendfsync says",
            _set("no-appendfsync-on-rewrite", "no"),
        )


def durability(facts: ServerFacts, settings: Settings) -> Iterator[Finding]:
    promised = settings.durability
    always = _config(facts, "appendonly") == "yes" and _config(facts, "appendfsync") == "always"
    replicas = int(facts.info.get("connected_slaves", 0))
    if promised == "fsync" and not always:
        yield error(
            "durability",
            "RELAY_DURABILITY=fsync is promised, and the server does not write before it answers: no instance is ready",
            f"{_set('appendonly', 'yes')} && {_set('appendfsync', 'always')}",
        )
    if promised == "replica" and replicas == 0:
        yield error(
            "durability",
            "RELAY_DURABILITY=replica is promised, and the server has no replica: nothing is accepted",
            "on a second server: redis-cli REPLICAOF <host> <port>",
        )


def disk(facts: ServerFacts, _: Settings) -> Iterator[Finding]:
    for name in ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"):
        if facts.info.get(name, "ok") != "ok":
            yield error(
                "disk", f"{name} is {facts.info[name]}: the disk is full or broken", "df -h; redis-cli BGREWRITEAOF"
            )


def buffers(facts: ServerFacts, _: Settings) -> Iterator[Finding]:
    limits = _buffer_limits(_config(facts, "client-output-buffer-limit") or "")
    normal, pubsub = limits.get("normal", 0), limits.get("pubsub", 0)
    if normal:
        yield warning(
            "buffers",
            f"client-output-buffer-limit of normal clients is {normal} bytes: a large answer cuts an instance off",
            _set("client-output-buffer-limit", "normal 0 0 0"),
        )
    if 0 < pubsub < PUBSUB_BYTES:
        yield warning(
            "buffers",
            f"client-output-buffer-limit of pubsub clients is {pubsub} bytes: a burst of wakes cuts an instance off, "
            "and mail waits for its next look",
            _set("client-output-buffer-limit", "pubsub 33554432 8388608 60"),
        )
    replica = limits.get("slave", limits.get("replica", 0))
    if 0 < replica < REPLICA_BYTES and int(facts.info.get("connected_slaves", 0)):
        yield warning(
            "buffers",
            f"client-output-buffer-limit of replicas is {replica} bytes: under load they start all over again",
            _set("client-output-buffer-limit", "replica 268435456 67108864 60"),
        )


def query_buffers(facts: ServerFacts, settings: Settings) -> Iterator[Finding]:
    for name in ("client-query-buffer-limit", "proto-max-bulk-len"):
        limit = int(_config(facts, name) or 0)
        needed = 16 * settings.max_frame_bytes
        if 0 < limit < needed:
            yield warning(
                "query_buffers",
                f"{name} is {limit} bytes: what instances send together may be refused, and they are cut off",
                _set(name, str(max(needed, 512 * MIB))),
            )


def clients(facts: ServerFacts, _: Settings) -> Iterator[Finding]:
    most, connected = int(_config(facts, "maxclients") or 0), int(facts.info.get("connected_clients", 0))
    if most and most - connected < SPARE_CLIENTS:
        yield warning(
            "clients",
            f"{connected} of {most} connections are in use: a new instance may not get one",
            _set("maxclients", "10000"),
        )
    if (_config(facts, "maxmemory-clients") or "0") not in ("0", "0%"):
        yield warning(
            "clients",
            f"maxmemory-clients is {_config(facts, 'maxmemory-clients')}: the server may cut off instances under load",
            _set("maxmemory-clients", "0"),
        )


def stream_nodes(facts: ServerFacts, _: Settings) -> Iterator[Finding]:
    size = int(_config(facts, "stream-node-max-bytes") or NODE_BYTES)
    if size > NODE_BYTES or size == 0:
        yield warning(
            "stream_nodes",
            f"stream-node-max-bytes is {size}: the first message of each mailbox takes as much memory",
            _set("stream-node-max-bytes", "512"),
        )


def lazy_expiry(facts: ServerFacts, _: Settings) -> Iterator[Finding]:
    if _config(facts, "lazyfree-lazy-expire") == "no":
        yield warning(
            "lazy_expiry",
            "lazyfree-lazy-expire is no: the server answers nobody while it frees the ids of a dedup window",
            _set("lazyfree-lazy-expire", "yes"),
        )


def allocator(facts: ServerFacts, _: Settings) -> Iterator[Finding]:
    """libc's is said only where it has cost something: a small store, as on a laptop, does not need better."""
    found = facts.info.get("mem_allocator", "jemalloc")
    used, resident = (int(facts.info.get(name, 0)) for name in ("used_memory", "used_memory_rss"))
    if found.startswith("libc") and resident - used > WASTED_BYTES and resident > WASTED_SHARE * used:
        yield warning(
            "allocator",
            f"the server's allocator is {found}, and keeps {(resident - used) // MIB} MiB that were freed, in pieces",
            "use a server that was built with jemalloc, as packages and images are",
        )


def timeouts(facts: ServerFacts, _: Settings) -> Iterator[Finding]:
    idle_s = int(_config(facts, "timeout") or 0)
    if 0 < idle_s < IDLE_S:
        yield warning(
            "timeouts",
            f"timeout is {idle_s} s: the server closes connections of instances that are only quiet",
            _set("timeout", "0"),
        )
    if _config(facts, "tcp-keepalive") == "0":
        yield warning(
            "timeouts",
            "tcp-keepalive is 0: connections of clients that vanished stay open for ever",
            _set("tcp-keepalive", "300"),
        )
    busy_ms = int(_config(facts, "busy-reply-threshold") or _config(facts, "lua-time-limit") or BUSY_MS)
    if 0 < busy_ms < BUSY_MS:
        yield warning(
            "timeouts",
            f"busy-reply-threshold is {busy_ms} ms: while a long script runs, everybody else is refused",
            _set("busy-reply-threshold", "5000"),
        )


def replication(facts: ServerFacts, _: Settings) -> Iterator[Finding]:
    info = facts.info
    if info.get("role") == "slave":
        yield error(
            "replication",
            f"the server is a replica of {info.get('master_host')}:{info.get('master_port')}: it takes no writes",
            "name the master in RELAY_REDIS_URL, or use redis+sentinel://",
        )
        return
    replicas = int(info.get("connected_slaves", 0))
    if replicas and "min_slaves_good_slaves" not in info:
        yield warning(
            "replication",
            "min-replicas-to-write is not set: a master that is being replaced takes writes that will be lost",
            _set("min-replicas-to-write", "1"),
        )
    for number in range(replicas):
        replica = dict(part.split("=", 1) for part in info.get(f"slave{number}", "").split(",") if "=" in part)
        lag_s = int(replica.get("lag", 0))
        if replica.get("state", "online") != "online" or lag_s > REPLICA_LAG_S:
            name = f"{replica.get('ip')}:{replica.get('port')}"
            yield warning(
                "replication",
                f"the replica {name} is {replica.get('state')} and {lag_s} s behind",
                f"redis-cli -h {replica.get('ip')} -p {replica.get('port')} INFO replication",
            )


def clock(facts: ServerFacts, _: Settings) -> Iterator[Finding]:
    if abs(facts.skew_ms) > SKEW_MS:
        way = "ahead of" if facts.skew_ms > 0 else "behind"
        yield warning(
            "clock",
            f"the server's clock is {abs(facts.skew_ms) / 1_000:.1f} s {way} this machine's: tokens and logs differ",
            "timedatectl set-ntp true, on both machines",
        )


CHECKS: tuple[Check, ...] = (
    *(version, eviction, memory, append_only, durability, disk, buffers, query_buffers, clients),
    *(stream_nodes, lazy_expiry, allocator, timeouts, replication, clock),
)


def examine_server(facts: ServerFacts, settings: Settings) -> list[Finding]:
    return [finding for check in CHECKS for finding in check(facts, settings)]


def _config(facts: ServerFacts, name: str) -> str | None:
    return facts.config.get(name) if facts.config is not None else None


def _set(name: str, value: str) -> str:
    quoted = f"'{value}'" if " " in value else value
    return f"redis-cli CONFIG SET {name} {quoted} && redis-cli CONFIG REWRITE"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _buffer_limits(text: str) -> dict[str, int]:
    """The hard limit of each class of clients, as in "normal 0 0 0 slave 268435456 67108864 60 pubsub …"."""
    words = text.split()
    return {words[n]: int(words[n + 1]) for n in range(0, len(words) - 3, 4)}
