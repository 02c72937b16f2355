"""The call of accept_plain.lua, which has only what ordinary messages need."""

from typing import Any

from relay.store.mailbox.outcomes import Stored
from relay.store.record.draft import Draft
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import Outcome
from relay.store.redis.resp import encode_command
from relay.store.redis.scripts import script

PUSH_BODY_BYTES = 8_192  # a larger message is not pushed: its recipient's instance asks when it has room


def by_mailbox(drafts: list[Draft]) -> dict[str, list[Draft]]:
    mailboxes: dict[str, list[Draft]] = {}
    for draft in drafts:
        drafts_of = mailboxes.get(draft.to)
        if drafts_of is None:
            mailboxes[draft.to] = [draft]
        else:
            drafts_of.append(draft)
    return mailboxes


def encode(encoder: ScriptEncoder, shard: int, drafts: list[Draft]) -> bytes:
    """In the order of the script's header, which `drafts` has from here on."""
    keys, settings, now_ms = encoder.keys, encoder.settings, encoder.clock.now_ms()
    mailboxes = by_mailbox(drafts)
    in_order: list[Draft] = []
    threads: list[str] = []
    lengths: list[int] = []
    shapes = []
    for drafts_of in mailboxes.values():
        in_order += drafts_of
        shapes.append(_shape(drafts_of, threads, lengths))
    drafts[:] = in_order
    run_counts, sizes, smalls = zip(*shapes, strict=True)
    timed: list[int] = []
    for n, draft in enumerate(in_order):
        if draft.is_timed:
            timed += (n + 1, draft.expires_at)
    names = keys.plain_accept_keys(shard, now_ms)
    arguments: list[Any] = [
        *(now_ms, encoder.instance, settings.events_max_entries, encoder.publish, keys.wake_prefix(shard)),
        *(2 * keys.ttl_ms, settings.mailbox_max_messages, settings.mailbox_max_bytes),
        *(len(mailboxes), len(threads), len(in_order), len(timed) // 2),
        *mailboxes,
        *run_counts,
        *sizes,
        *smalls,
        *threads,
        *lengths,
        *[draft.key for draft in in_order],
        *[draft.rest for draft in in_order],
        *[draft.opts for draft in in_order],
        *[draft.body for draft in in_order],
        *timed,
    ]
    boxes = [keys.box(address) for address in mailboxes]
    count = len(names) + len(boxes)
    return encode_command("EVALSHA", script("accept_plain").sha, count, *names, *boxes, *arguments)


def _shape(drafts_of: list[Draft], threads: list[str], lengths: list[int]) -> tuple[int, int, int]:
    """Adds the runs of a mailbox to the lists; how many they are, their bytes, and 1 if all are small enough else 0."""
    before, size, is_small, last = len(threads), 0, 1, None
    for draft in drafts_of:
        size += draft.size
        if len(draft.body) > PUSH_BODY_BYTES:
            is_small = 0
        if draft.thread_key == last:
            lengths[-1] += 1
        else:
            last = draft.thread_key
            threads.append(last)
            lengths.append(1)
    return len(threads) - before, size, is_small


def answer(drafts: list[Draft], outcome: Outcome) -> list[Draft]:
    """Tells what was stored; returns what accept.lua must look at."""
    _, _, _, first_seqs, handles = outcome
    left: list[Draft] = []
    next_run, thread, seq = iter(first_seqs), "", 0
    for draft, handle in zip(drafts, handles, strict=True):
        if draft.thread_key != thread:
            thread, seq = draft.thread_key, next(next_run)
        if handle:
            draft.answer(draft, Stored(handle.decode(), seq))
            seq += 1
        else:
            left.append(draft)
    return left
