"""Receipts as the store keeps them: short lines. They become the JSON of the wire when they are sent.

The first line of a run is `at_ms`, which they share. Then each receipt is a line of columns with tabs between:
id, to, latency_ms, was_stored (1 or nothing), attempt (nothing: 1), state (nothing: delivered), reason (JSON or
nothing). Empty columns at the end are left out. `to` is a name without its tenant, which is also the sender's.
ack_plain.py and shard.lua write these lines.
"""

from collections.abc import Iterator

from relay.protocol.quoting import quoted

RUN_BYTES = 4_096  # of receipts in one entry of the outbox, as JSON, so that a number of entries also bounds a frame
JSON_BYTES = 105  # of a receipt's JSON, besides its line and the tenant


def delivered_line(id: str, to: str, latency_ms: int, was_stored: bool, attempt: int) -> str:
    """The line of a message that was acked."""
    if attempt == 1:
        return f"{id}\t{to}\t{latency_ms}\t1" if was_stored else f"{id}\t{to}\t{latency_ms}"
    return f"{id}\t{to}\t{latency_ms}\t{'1' if was_stored else ''}\t{attempt}"


def in_runs(sender: str, lines: list[str]) -> Iterator[list[str]]:
    """What one sender gets, in runs of about RUN_BYTES; put_receipts in shard.lua cuts in the same places."""
    first, size, each_bytes = 0, 0, len(sender) + JSON_BYTES
    for n, line in enumerate(lines, 1):
        size += len(line) + each_bytes
        if size >= RUN_BYTES:
            yield lines[first:n]
            first, size = n, 0
    if first < len(lines):
        yield lines[first:]


def as_json(receipts: str, sender: str) -> bytes:
    """Receipts of a sender for a frame, with commas between."""
    at_ms, *lines = receipts.split("\n")
    tenant = sender[: sender.index("/") + 1]
    ordinary = _outcome("", "", "", at_ms)
    return ",".join([_receipt(line.split("\t"), tenant, at_ms, ordinary) for line in lines]).encode()


def _receipt(columns: list[str], tenant: str, at_ms: str, ordinary: str) -> str:
    if len(columns) == 3:
        (id, to, latency_ms), outcome, end = columns, ordinary, "}"
    else:
        id, to, latency_ms, was_stored, attempt, state, reason = [*columns, "", "", ""][:7]
        outcome = _outcome(state, was_stored, attempt, at_ms)
        end = f',"reason":{reason}}}' if reason else "}"
    return f'{{"id":{quoted(id)},"to":"{tenant}{to}",{outcome},"latency_ms":{latency_ms}{end}'


def _outcome(state: str, was_stored: str, attempt: str, at_ms: str) -> str:
    """The middle of a receipt, the same for all that are ordinary."""
    return (
        f'"state":"{state or "delivered"}","was_stored":{"true" if was_stored else "false"},'
        f'"attempt":{attempt or "1"},"at_ms":{at_ms}'
    )
