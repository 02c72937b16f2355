"""Every setting of the relay: one frozen object, read once from RELAY_* at the start."""

import os
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from relay.errors import ConfigurationError

DAY_S = 86_400
CLUSTER_SHARDS = 64  # so many that masters can be added; on one server fewer make larger batches
ENV_PREFIX = "RELAY_"
CLIENT_VARIABLES = frozenset({"RELAY_URL", "RELAY_TOKEN"})  # what `relay send` and its like read, and a server ignores
SECRET_MIN_BYTES = 32  # a shorter one can be guessed from a single token
ALL_TENANTS = "*"
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")  # as in an address


def _between(default: Any, low: float, high: float, doc: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "doc": doc})


def _one_of(default: str | None, choices: tuple[str, ...], doc: str) -> Any:
    return field(default=default, metadata={"choices": choices, "doc": doc})


def _text(default: str | None, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


def _secret(doc: str) -> Any:
    return field(default=None, metadata={"doc": doc, "min_bytes": SECRET_MIN_BYTES})


def _words(default: tuple[str, ...], doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


def _tenants(doc: str) -> Any:
    return field(default=(), metadata={"doc": doc, "tenants": True})


def _flag(default: bool, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator can choose. Units are in the names; each has its meaning beside the default."""

    redis_url: str | None = _text(None, "URL of the Redis or Valkey server (deploy.md). Unset: the embedded server.")
    host: str = _text("127.0.0.1", "The address that an instance listens on.")
    port: int = _between(
        8080, 0, 65_535, "The port of an instance; with `relay up`, of the first one. 0: any free port."
    )
    token_secret: str | None = _secret(
        "HS256 secret for tokens, at least 32 bytes. `relay up` makes one if it is unset."
    )
    token_secret_before: str | None = _secret("The previous secret, during a rotation: verifies tokens, makes none.")
    token_public_key: str | None = _text(None, "Ed25519 public key for EdDSA tokens: PEM, or base64 of 32 bytes.")
    token_max_age_s: int = _between(DAY_S, 60, 366 * DAY_S, "Tokens that expire later than this from now are refused.")
    metrics_token: str | None = _text(
        None, "A fixed token for `/metrics` alone. If set, nobody reads them without one."
    )
    metrics_port: int = _between(
        0, 0, 65_535, "Port for `/metrics` and `/healthz` of workers, on `RELAY_HOST`. 0: none."
    )
    admin_is_operator: bool = _flag(False, "Gives the scope `admin` the rights of `operator`.")
    open_tenants: tuple[str, ...] = _tenants(
        "Tenants where agents need no registration (security.md). `relay up` opens `demo`."
    )
    shards: int = _between(8, 1, 4096, "Number of shards, fixed for the life of the data. On a Cluster 64 unless set.")
    store_max_memory_share: float = _between(
        0.9, 0.1, 1, "Above this share of the server's maxmemory, sends are refused."
    )
    ready_share: float = _between(
        0.5, 0, 1, "On a Cluster: the share of shards that an instance must reach to be ready."
    )
    durability: str | None = _one_of(
        None, ("memory", "fsync", "replica"), "What `accepted` promises. Unset: what the server provides."
    )
    mailbox_max_messages: int = _between(1_000, 1, 1_000_000, "Messages per mailbox; beyond it `queue_full`.")
    mailbox_max_bytes: int = _between(64 * 2**20, 1, 2**40, "Payload bytes per mailbox; beyond it `queue_full`.")
    max_payload_bytes: int = _between(65_536, 1, 2**24, "Bytes of one payload; beyond it `too_large`.")
    reply_max_bytes: int = _between(2**20, 1, 2**30, "Payload bytes in the parts of one reply; then `too_large`.")
    max_tasks: int = _between(10_000, 1, 10_000_000, "Tasks kept per requester; beyond it the oldest is dropped.")
    max_threads: int = _between(100_000, 1, 10_000_000, "Threads a sender may begin in a shard per `MESSAGE_TTL_S`.")
    sender_max_mailboxes: int = _between(
        1_000, 1, 10_000_000, "Unused addresses a sender may open per `MESSAGE_TTL_S`."
    )
    tenant_max_mailboxes: int = _between(
        100_000, 1, 100_000_000, "The same for all senders of a tenant; see limits.md."
    )
    agent_idle_s: int = _between(
        30 * DAY_S, 60, 3_660 * DAY_S, "Agents away this long are forgotten, unless an admin made them."
    )
    registrations_per_s: float = _between(10, 0.1, 100_000, "New agents by first use of a key, per remote address.")
    message_ttl_s: int = _between(
        7 * DAY_S, 1, 30 * DAY_S, "Unconfirmed messages expire; a sender can only shorten it."
    )
    sweep_every_s: float = _between(300, 0.1, DAY_S, "How often the sweeper looks for expired messages.")
    snapshot_every_s: float = _between(
        10, 0.1, 3_600, "How often the observer writes snapshots and looks for anomalies."
    )
    history_keep_s: int = _between(3_600, 60, 7 * DAY_S, "How long snapshots are kept; each takes about 400 bytes.")
    anomalies_keep_s: int = _between(DAY_S, 60, 30 * DAY_S, "How long an anomaly is kept after it was last seen.")
    anomaly_stuck_s: float = _between(300, 1, DAY_S, "A session with a full window that settles nothing for this long.")
    anomaly_long_processing_s: float = _between(600, 1, 7 * DAY_S, "A message that is held for this long.")
    anomaly_stale_s: float = _between(3_600, 1, 30 * DAY_S, "A message that is in its mailbox for this long.")
    anomaly_redeliveries: int = _between(5, 2, 10_000, "This many deliveries of one message in an hour are a loop.")
    anomaly_nearly_full_share: float = _between(0.8, 0.01, 1, "A mailbox that is this full.")
    anomaly_burst_take: int = _between(10_000, 1, 10_000_000, "Messages that a session takes between two snapshots.")
    anomaly_bulk_send: int = _between(10_000, 1, 10_000_000, "Messages that an agent sends between two snapshots.")
    anomaly_cleared: int = _between(100, 1, 10_000_000, "Messages of a mailbox cancelled between two snapshots.")
    anomaly_receipts: int = _between(1_000, 1, 10_000_000, "Entries in the receipts stream of one sender.")
    anomaly_large_payload_share: float = _between(0.9, 0.01, 1, "A payload of this share of `MAX_PAYLOAD_BYTES`.")
    anomaly_flash_ms: int = _between(1, 0, 60_000, "A session that acks everything within this time.")
    anomaly_flash_acks: int = _between(100, 1, 10_000_000, "The acks between two snapshots that this rule needs.")
    anomaly_clock_skew_ms: int = _between(5_000, 100, 3_600_000, "A clock that is off by this much.")
    anomaly_growing_messages: int = _between(100, 1, 10_000_000, "Growth of a tenant over six snapshots in a row.")
    dedup_window_s: int = _between(3_600, 1, 7 * DAY_S, "How long the id of an ended message is remembered.")
    recheck_s: float = _between(5, 0.05, 300, "A lost wake delays a delivery by at most this.")
    heartbeat_s: float = _between(25, 0.1, 300, "Interval of pings; also how long a dead instance keeps messages held.")
    silent_after_s: float = _between(75, 0.1, 3_600, "A session without any frame for this long is closed (4010).")
    auth_timeout_s: float = _between(10, 0.1, 300, "A client that has not authenticated by then is closed (4503).")
    rate_per_s: int = _between(
        1_000, 0, 10_000_000, "Messages per second and agent; other operations cost less. 0: no limit."
    )
    rate_burst: int = _between(2_000, 1, 10_000_000, "Messages that an agent can send at once after a pause.")
    max_connections: int = _between(50_000, 1, 10_000_000, "WebSockets per instance (4029), and as many plain HTTP.")
    max_connections_per_agent: int = _between(256, 1, 1_000_000, "Sessions of one agent on an instance; then 4029.")
    max_connections_per_address: int = _between(
        1_000, 0, 10_000_000, "Unauthenticated connections per IP address. 0: off."
    )
    sessions_per_s: float = _between(
        500, 0.1, 1_000_000, "Sessions that may begin on an instance per second; then 4029."
    )
    max_buffer_bytes: int = _between(128 * 2**20, 2**16, 2**40, "Bytes that wait for all readers of an instance.")
    drain_s: float = _between(30, 0, 600, "How long a stopping instance waits for its sessions to finish.")
    dead_max_messages: int = _between(
        1_000, 1, 1_000_000, "A full dead-letter box leaves the message parked in its mailbox."
    )
    events_keep_s: int = _between(DAY_S, 60, 30 * DAY_S, "Events older than this are trimmed.")
    events_keep_unarchived_s: int = _between(
        7 * DAY_S, 60, 90 * DAY_S, "The same, for events that an archive has not read."
    )
    events_max_bytes: int = _between(256 * 2**20, 2**20, 2**40, "Memory for the event logs of all shards.")
    events_max_entries: int = _between(100_000, 100, 100_000_000, "Event log entries per shard, whatever their age.")
    allowed_origins: tuple[str, ...] = _words(
        (), "Origins of pages that may connect (security.md), as `https://relay.example.com`."
    )
    log_format: str = _one_of("text", ("json", "text"), "One JSON object or one line of text per event.")
    log_level: str = _one_of(
        "info", ("debug", "info", "warning", "error"), "`debug` also logs each step of each message."
    )
    log_addresses: str = _one_of("plain", ("plain", "hashed"), "`hashed` keeps addresses out of the logs.")
    otlp_endpoint: str | None = _text(None, "Where to send spans, as `http://collector:4318`. Unset: nowhere.")
    data_dir: Path = field(
        default=Path("data"), metadata={"doc": "Folder of the embedded server and of the generated secret."}
    )

    @property
    def max_frame_bytes(self) -> int:
        """A larger WebSocket frame closes the socket (1009): room for many messages, and for the largest."""
        return max(4 * 2**20, 2 * self.max_payload_bytes)

    def is_open(self, tenant: str) -> bool:
        """Whether agents of this tenant come to be by first use."""
        return tenant in self.open_tenants or ALL_TENANTS in self.open_tenants


def env_name(name: str) -> str:
    return ENV_PREFIX + name.upper()


def load(environ: Mapping[str, str] = os.environ, **overrides: Any) -> Settings:
    """Settings from the environment, with flags on top. Raises ConfigurationError naming every wrong variable."""
    known = {env_name(f.name): f for f in fields(Settings)}
    given = {name: text for name, text in environ.items() if name.startswith(ENV_PREFIX)}
    wrong = [f"{name} is not a setting" for name in sorted(given.keys() - known.keys() - CLIENT_VARIABLES)]
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name in known and text != "":
            try:
                values[known[name].name] = _parse(known[name], text)
            except ValueError as error:
                wrong.append(f"{name}: {error}")
    values |= {name: value for name, value in overrides.items() if value is not None}
    if wrong:
        raise ConfigurationError("; ".join(wrong))
    if str(values.get("redis_url")).startswith("redis+cluster:"):
        values.setdefault("shards", CLUSTER_SHARDS)
    return Settings(**values)


def _parse(spec: Field[Any], text: str) -> Any:
    kind = _KINDS[spec.name]
    if kind == tuple[str, ...]:
        return _list(spec, text)
    if kind is bool:
        return _truth(text)
    if kind is Path:
        return Path(text)
    if kind in (int, float):
        return _number(spec, kind, text)
    choices = spec.metadata.get("choices")
    if choices and text not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}")
    if len(text.encode()) < spec.metadata.get("min_bytes", 0):
        raise ValueError(f"must be {spec.metadata['min_bytes']} bytes or more")
    return text


def _list(spec: Field[Any], text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if "tenants" in spec.metadata and words != (ALL_TENANTS,):
        for word in words:
            if not _TENANT.fullmatch(word):
                raise ValueError(f"{word!r} is not a tenant: 1–64 of a-z A-Z 0-9 . _ -, or a lone {ALL_TENANTS}")
    return words


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def _number(spec: Field[Any], kind: type[int] | type[float], text: str) -> int | float:
    low, high = spec.metadata["low"], spec.metadata["high"]
    try:
        number = kind(text)
    except ValueError:
        raise ValueError(f"must be a number from {low} to {high}") from None
    if not low <= number <= high:
        raise ValueError(f"must be from {low} to {high}")
    return number


_KINDS = get_type_hints(Settings)
