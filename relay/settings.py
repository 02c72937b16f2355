"""Every setting of the relay: one frozen object, read once from RELAY_* at the door."""

import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from relay.errors import ConfigurationError

DAY_S = 86_400
ENV_PREFIX = "RELAY_"


def _between(default: Any, low: float, high: float, doc: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "doc": doc})


def _one_of(default: str | None, choices: tuple[str, ...], doc: str) -> Any:
    return field(default=default, metadata={"choices": choices, "doc": doc})


def _text(default: str | None, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


def _words(default: tuple[str, ...], doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator can choose. Units are in the names; the consequence stands beside the default."""

    redis_url: str | None = _text(
        None,
        "The store: `redis://`, `rediss://`, `unix://` or `redis+sentinel://`; unset: the embedded server.",
    )
    host: str = _text("127.0.0.1", "The address an instance listens on.")
    port: int = _between(
        8080, 0, 65_535, "The port of an instance; with `relay up`, of the first one. 0: any free one."
    )
    token_secret: str | None = _text(
        None, "HS256 secret of the tokens (32 bytes or more); `relay up` makes one when unset."
    )
    token_public_key: str | None = _text(None, "Ed25519 public key (PEM, or base64 of 32 bytes) for EdDSA tokens.")
    token_max_age_s: int = _between(DAY_S, 60, 366 * DAY_S, "A token that expires later than this from now is refused.")
    metrics_token: str | None = _text(
        None, "A fixed token that may read `/metrics` and nothing else: what Prometheus is given."
    )
    open_tenants: tuple[str, ...] = _words(
        ("*",), "Tenants whose agents register by first use, separated by commas; `*` is all. The others are closed."
    )
    shards: int = _between(64, 1, 4096, "Parts of the store. Fixed for the life of the data.")
    durability: str | None = _one_of(
        None, ("memory", "fsync", "replica"), "What `accepted` promises; unset: the level the server is seen to give."
    )
    mailbox_max_messages: int = _between(1_000, 1, 1_000_000, "The next send is refused with `queue_full`.")
    mailbox_max_bytes: int = _between(64 * 2**20, 1, 2**40, "The same, counted in payload bytes.")
    max_payload_bytes: int = _between(65_536, 1, 2**24, "A larger payload is refused with `too_large`.")
    message_ttl_s: int = _between(
        7 * DAY_S, 1, 30 * DAY_S, "An unconfirmed message expires; its sender may only shorten this."
    )
    sweep_every_s: float = _between(300, 0.1, DAY_S, "How often the sweeper looks for what has expired.")
    dedup_window_s: int = _between(3_600, 1, 7 * DAY_S, "How long after its end a message's id is still known.")
    recheck_s: float = _between(5, 0.05, 300, "A lost wake delays a delivery by at most this.")
    heartbeat_s: float = _between(
        25, 0.1, 300, "Pings to clients; also how long a dead instance may keep messages held."
    )
    silent_after_s: float = _between(75, 0.1, 3_600, "A session without any frame for this long is closed (4010).")
    auth_timeout_s: float = _between(10, 0.1, 300, "A client that has not authenticated by then is closed (4503).")
    rate_per_s: int = _between(1_000, 0, 10_000_000, "Messages per sender and second, over all instances; 0 is off.")
    rate_burst: int = _between(2_000, 1, 10_000_000, "Messages that a rested sender may send at once.")
    max_connections: int = _between(50_000, 1, 10_000_000, "The next WebSocket on an instance is closed (4029).")
    max_buffer_bytes: int = _between(
        256 * 2**20,
        2**16,
        2**40,
        "Bytes waiting in all sockets of an instance; over it, slow readers get no more mail.",
    )
    drain_s: float = _between(30, 0, 600, "How long a stopping instance waits for its sessions to finish.")
    dead_max_messages: int = _between(
        1_000, 1, 1_000_000, "A full dead-letter box leaves the message in its mailbox, parked."
    )
    events_keep_s: int = _between(DAY_S, 60, 30 * DAY_S, "Events older than this are trimmed.")
    events_keep_unarchived_s: int = _between(
        7 * DAY_S, 60, 90 * DAY_S, "Events that an archive has not read yet are kept this long, if it has read any."
    )
    events_max_entries: int = _between(
        100_000, 100, 100_000_000, "Entries (batches of events) kept per shard, whatever their age."
    )
    allowed_origins: tuple[str, ...] = _words(
        (), "Browser origins that may connect, separated by commas; the relay's own always may."
    )
    log_format: str = _one_of("text", ("json", "text"), "One JSON object or one readable line per event.")
    log_level: str = _one_of(
        "info", ("debug", "info", "warning", "error"), "`debug` also logs each step of each message."
    )
    log_addresses: str = _one_of("plain", ("plain", "hashed"), "`hashed` keeps addresses out of the logs.")
    data_dir: Path = field(
        default=Path("data"), metadata={"doc": "Where the embedded server and the made secret live."}
    )

    @property
    def max_frame_bytes(self) -> int:
        """A larger WebSocket frame closes the socket (1009): room for many messages, and for the largest."""
        return max(4 * 2**20, 2 * self.max_payload_bytes)

    def is_open(self, tenant: str) -> bool:
        """Whether agents of this tenant come to be by first use."""
        return "*" in self.open_tenants or tenant in self.open_tenants


def env_name(name: str) -> str:
    return ENV_PREFIX + name.upper()


def load(environ: Mapping[str, str] = os.environ, **overrides: Any) -> Settings:
    """Settings from the environment, with flags on top. Raises ConfigurationError naming every wrong variable."""
    known = {env_name(f.name): f for f in fields(Settings)}
    given = {name: text for name, text in environ.items() if name.startswith(ENV_PREFIX)}
    wrong = [f"{name} is not a setting" for name in sorted(given.keys() - known.keys())]
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
    return Settings(**values)


def _parse(spec: Field[Any], text: str) -> Any:
    kind = _KINDS[spec.name]
    if kind == tuple[str, ...]:
        return tuple(word.strip() for word in text.split(",") if word.strip())
    if kind is Path:
        return Path(text)
    if kind in (int, float):
        return _number(spec, kind, text)
    choices = spec.metadata.get("choices")
    if choices and text not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}")
    return text


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
