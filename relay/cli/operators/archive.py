"""Reads the events of one message from the Parquet archive."""

from pathlib import Path
from typing import Any

from relay.errors import ConfigurationError

HIDDEN = ("tenant", "shard", "stream_ms", "stream_n", "place", "dt", "batch")


def events_in(folder: Path, tenant: str, message_id: str) -> list[dict[str, Any]]:
    """As /v1/activity shows them, oldest first. Raises ConfigurationError without pyarrow."""
    try:
        from pyarrow import compute, dataset
    except ImportError:
        raise ConfigurationError("--archive needs pyarrow: any `relay spark` command installs it") from None
    if not (folder / "events").is_dir():
        raise ConfigurationError(
            f"--archive: {folder} has no events; name the folder that `relay spark archive` writes"
        )
    found = dataset.dataset(folder / "events", format="parquet", partitioning="hive")
    wanted = (compute.field("tenant") == tenant) & (compute.field("id") == message_id)
    rows = found.to_table(filter=wanted).to_pylist()
    return sorted((_shown(row, tenant) for row in rows), key=lambda event: event["at_ms"])


def _shown(row: dict[str, Any], tenant: str) -> dict[str, Any]:
    event = {name: value for name, value in row.items() if name not in HIDDEN and value not in ("", None)}
    for name in ("to", "from"):
        if name in event:
            event[name] = f"{tenant}/{event[name]}"
    return event
