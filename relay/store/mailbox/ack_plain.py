"""The call of ack_plain.lua: prepares what it writes, from what was kept since the delivery."""

from collections.abc import Iterable
from typing import Any

from relay.store.record.events import doer
from relay.store.record.receipt_lines import delivered_line, in_runs
from relay.store.record.taken import Taken, came_at_ms
from relay.store.redis.encoder import ENDED_BUCKETS, Number, ScriptEncoder
from relay.store.redis.resp import encode_command
from relay.store.redis.scripts import script

TAB = "\t"
SEQ, ACCEPTED_AT, RECEIPT, TIMED, VIA = 0, 1, 6, 8, 9  # columns of opts; see shard.lua
DUE_KINDS = ("hold", "ttl", "park", "bury")  # whatever may be due to a message with a time


class HeldAck:
    """Acks of one session, with the deliveries that it kept."""

    __slots__ = ("address", "holder", "is_timed", "rows", "tenant")

    def __init__(self, address: str, holder: str, rows: list[Taken], is_timed: bool) -> None:
        self.address = address
        self.tenant = address[: address.index("/") + 1]  # as an address of it begins
        self.holder = holder
        self.rows = rows
        self.is_timed = is_timed


class Writing:
    """What a call writes, gathered message by message."""

    def __init__(self, now_ms: int, instance: str) -> None:
        self._now_ms = now_ms
        self._instance = instance
        self.keys: list[str] = []
        self.records: list[str] = []
        self.events = [f"{now_ms}\t{instance}"]  # lines, as shard.lua has them
        self.tenants: dict[str, list[int]] = {}  # name -> messages, bytes
        self.receipts: dict[tuple[str, str], list[str]] = {}  # session, sender -> lines of receipts
        self.due: list[str] = []
        self.threads: list[str] = []

    def add(self, ack: HeldAck) -> int:
        """Returns the bytes of the payloads."""
        total, who = 0, doer(ack.holder, self._instance)
        for row in ack.rows:
            total += self._add(ack, who, row)
        counts = self.tenants.setdefault(ack.address.partition("/")[0], [0, 0])
        counts[0] += len(ack.rows)
        counts[1] += total
        return total

    def _add(self, ack: HeldAck, who: str, row: Taken) -> int:
        key, _, thread, _, size = row.head.rsplit("\t", 4)
        opts, entry, now_ms = row.opts.split("\t"), row.entry, self._now_ms
        self.keys.append(key)
        record = f"{entry}\t{now_ms - came_at_ms(entry)}"
        self.records.append(record if row.attempt == 1 else f"{record}\tacked\t{row.attempt}")
        held_ms = max(0, now_ms - row.taken_at_ms)
        self.events.append(f"acked\t{entry}\t\t{row.attempt}\t{who}\t\t{held_ms}\t{key}")
        if thread:
            self.threads.append(f"{key.rpartition(TAB)[0]}\t{thread}\t{int(opts[SEQ]):016d}")
        if opts[TIMED] == "1" or ack.is_timed:
            self.due += [f"{kind}\t{ack.address}\t{entry}" for kind in DUE_KINDS]
        if opts[RECEIPT] != "0":
            _, to, sender, id = key.split("\t")
            line = delivered_line(id, to, max(0, now_ms - int(opts[ACCEPTED_AT])), row.was_stored, row.attempt)
            via = opts[VIA] if len(opts) > VIA else ""
            self.receipts.setdefault((via, ack.tenant + sender), []).append(line)
        return int(size)

    def senders(self) -> Iterable[tuple[str, str]]:
        """The session that sent, and `sender \\t count \\t receipts`: the time of them all, and their lines."""
        for (via, sender), lines in self.receipts.items():
            for run in in_runs(sender, lines):
                yield via, "\n".join([f"{sender}\t{len(run)}\t{self._now_ms}", *run])


def encode(encoder: ScriptEncoder, shard: int, acks: list[HeldAck], number: Number, near_cap: int) -> bytes:
    """The call, in the order of the script's header."""
    keys, now_ms = encoder.keys, encoder.clock.now_ms()
    writing = Writing(now_ms, encoder.instance)
    sizes = [writing.add(ack) for ack in acks]
    senders = list(writing.senders())
    names = keys.plain_ack_keys(shard, now_ms)
    boxes = [keys.box(ack.address) for ack in acks]
    arguments: list[Any] = [
        *(now_ms, encoder.instance, number[0], number[1], encoder.settings.events_max_entries),
        *(ENDED_BUCKETS * keys.dedup_window_ms, encoder.publish, keys.wake_prefix(shard), near_cap),
        "\n".join(writing.events),
        *(len(acks), len(writing.keys), len(writing.tenants), len(senders), len(writing.due), len(writing.threads)),
        *(ack.address for ack in acks),
        *(ack.holder for ack in acks),
        *(len(ack.rows) for ack in acks),
        *sizes,
        *(row.entry for ack in acks for row in ack.rows),
        *writing.keys,
        *writing.records,
        *writing.tenants,
        *(counts[0] for counts in writing.tenants.values()),
        *(counts[1] for counts in writing.tenants.values()),
        *(session for session, _ in senders),
        *(receipts for _, receipts in senders),
        *writing.due,
        *writing.threads,
    ]
    count = len(names) + len(boxes)
    return encode_command("EVALSHA", script("ack_plain").sha, count, *names, *boxes, *arguments)
