"""Rules: each is a small function that returns an anomaly or None. No I/O."""

from collections.abc import Sequence
from itertools import pairwise

from relay.store.watching.anomalies import Anomaly
from relay.store.watching.holds import SessionHolds
from relay.store.witness import Regress
from workers.tallies import Notable, SessionTally

GROWING_SNAPSHOTS = 6  # in a row, each with more messages than the one before


# -- holders


def stuck_consumer(agent: str, holds: SessionHolds, window: int | None, after_s: float) -> Anomaly | None:
    """It holds its whole window, and has taken nothing for long: so it has settled nothing either."""
    if window is None or holds.count < window or holds.idle_s < after_s:
        return None
    return Anomaly(
        kind="stuck_consumer",
        severity="critical",
        subject=holds.session,
        text=f"{holds.session} holds all {window} messages of {agent} that it may; {holds.idle_s:.0f} s without an ack",
        evidence={"holds": holds.count, "window": window, "idle_s": round(holds.idle_s)},
        agent=agent,
        session=holds.session,
    )


def long_processing(agent: str, holds: SessionHolds, after_s: float) -> Anomaly | None:
    if holds.oldest_s < after_s:
        return None
    return Anomaly(
        kind="long_processing",
        severity="warning",
        subject=holds.session,
        text=f"{holds.session} has held a message of {agent} for {holds.oldest_s:.0f} s",
        evidence={"held_s": round(holds.oldest_s)},
        agent=agent,
        session=holds.session,
        entry=holds.oldest_entry,
    )


def zombie(agent: str, holder: str, entry: str, held_s: float, timeout_s: float) -> Anomaly | None:
    """A hold that should have ended long ago: nobody ends holds any more."""
    if held_s < 2 * timeout_s:
        return None
    return Anomaly(
        kind="zombie",
        severity="critical",
        subject=agent,
        text=f"{holder} holds a message of {agent} for {held_s:.0f} s, though its time was {timeout_s:.0f} s",
        evidence={"held_s": round(held_s), "timeout_s": round(timeout_s)},
        agent=agent,
        session=holder,
        entry=entry,
    )


def burst_take(who: str, session: SessionTally, agent: str, most: int) -> Anomaly | None:
    if session.taken < most:
        return None
    return Anomaly(
        kind="burst_take",
        severity="info",
        subject=who,
        text=f"{who} took {session.taken:.0f} messages of {agent} between two snapshots",
        evidence={"taken": round(session.taken)},
        agent=agent,
        session=who,
    )


def flash(who: str, session: SessionTally, agent: str, within_ms: int, least: int) -> Anomaly | None:
    """It acks everything in no time: perhaps it acks before it works."""
    if session.acked < least or session.others or session.slowest_ms > within_ms:
        return None
    return Anomaly(
        kind="flash",
        severity="info",
        subject=who,
        text=f"{who} acked all {session.acked:.0f} messages of {agent} within {session.slowest_ms} ms each",
        evidence={"acked": round(session.acked), "slowest_ms": session.slowest_ms},
        agent=agent,
        session=who,
    )


# -- messages


def redelivery_loop(failed: Notable, deliveries: int, most: int) -> Anomaly | None:
    if deliveries < most:
        return None
    return Anomaly(
        kind="redelivery_loop",
        severity="warning",
        subject=failed.agent,
        text=f"message {failed.id} to {failed.agent} was taken {deliveries} times within an hour, and came back",
        evidence={"deliveries": deliveries, "reason": failed.reason},
        agent=failed.agent,
        message=failed.id,
        entry=failed.entry,
    )


def near_dead(failed: Notable, next_attempt: int, max_attempts: int) -> Anomaly | None:
    """Its next failure buries it."""
    if max_attempts == 0 or next_attempt < max_attempts:
        return None
    return Anomaly(
        kind="near_dead",
        severity="warning",
        subject=failed.agent,
        text=f"message {failed.id} to {failed.agent} is dead if its next attempt fails",
        evidence={"attempt": next_attempt, "max_attempts": max_attempts, "reason": failed.reason},
        agent=failed.agent,
        message=failed.id,
        entry=failed.entry,
    )


def dead_lettered(agent: str, dead: float, reason: str) -> Anomaly | None:
    if dead < 1:
        return None
    return Anomaly(
        kind="dead_lettered",
        severity="warning",
        subject=agent,
        text=f"{_messages(dead)} to {agent} went to the dead-letter box: {reason or 'no reason was given'}",
        evidence={"dead": round(dead), "reason": reason},
        agent=agent,
    )


def lock_stolen(overdue: Notable, holder: str) -> Anomaly | None:
    """Another session took over an overdue message; the first may still be working on it."""
    if holder == overdue.who:
        return None
    return Anomaly(
        kind="lock_stolen",
        severity="warning",
        subject=overdue.agent,
        text=f"message {overdue.id} to {overdue.agent} went from {overdue.who} to {holder}: its time was over",
        evidence={"before": overdue.who},
        agent=overdue.agent,
        session=holder,
        message=overdue.id,
        entry=overdue.entry,
    )


def large_payload(agent: str, size: int, message: str, limit: int, share: float) -> Anomaly | None:
    if size < share * limit:
        return None
    return Anomaly(
        kind="large_payload",
        severity="info",
        subject=agent,
        text=f"{agent} sends payloads of {size:,} bytes; the limit is {limit:,}",
        evidence={"bytes": size, "limit": limit},
        agent=agent,
        message=message,
    )


# -- mailboxes


def mailbox_full(agent: str, depth: int, limit: int, refused: float) -> Anomaly | None:
    if depth < limit and refused < 1:
        return None
    return Anomaly(
        kind="mailbox_full",
        severity="critical",
        subject=agent,
        text=f"the mailbox of {agent} is full: {depth:,} of {limit:,} messages, {refused:.0f} refused",
        evidence={"depth": depth, "limit": limit, "refused": round(refused)},
        agent=agent,
    )


def mailbox_nearly_full(agent: str, depth: int, limit: int, share: float) -> Anomaly | None:
    if not share * limit <= depth < limit:
        return None
    return Anomaly(
        kind="mailbox_nearly_full",
        severity="warning",
        subject=agent,
        text=f"the mailbox of {agent} has {depth:,} of {limit:,} messages",
        evidence={"depth": depth, "limit": limit},
        agent=agent,
    )


def stale(agent: str, oldest_age_s: float, waiting: int, why: str, after_s: float) -> Anomaly | None:
    if oldest_age_s < after_s:
        return None
    return Anomaly(
        kind="stale",
        severity="warning",
        subject=agent,
        text=f"the oldest message to {agent} is {oldest_age_s:.0f} s old: {why or 'it is held or delayed'}",
        evidence={"oldest_age_s": round(oldest_age_s), "waiting": waiting, "why": why},
        agent=agent,
    )


def cleared(agent: str, cancelled: float, least: int) -> Anomaly | None:
    if cancelled < least:
        return None
    return Anomaly(
        kind="cleared",
        severity="warning",
        subject=agent,
        text=f"{cancelled:.0f} messages to {agent} were cancelled between two snapshots",
        evidence={"cancelled": round(cancelled)},
        agent=agent,
    )


def expired_unread(agent: str, expired: float) -> Anomaly | None:
    if expired < 1:
        return None
    return Anomaly(
        kind="expired_unread",
        severity="warning",
        subject=agent,
        text=f"{_messages(expired)} to {agent} expired unread",
        evidence={"expired": round(expired)},
        agent=agent,
    )


# -- senders


def bulk_send(agent: str, sent: float, most: int) -> Anomaly | None:
    if sent < most:
        return None
    return Anomaly(
        kind="bulk_send",
        severity="info",
        subject=agent,
        text=f"{agent} sent {sent:.0f} messages between two snapshots",
        evidence={"sent": round(sent)},
        agent=agent,
    )


def receipts_piling_up(agent: str, receipts: int, most: int) -> Anomaly | None:
    if receipts < most:
        return None
    return Anomaly(
        kind="receipts_piling_up",
        severity="warning",
        subject=agent,
        text=f"{receipts:,} receipts or more wait for {agent}, which does not confirm them",
        evidence={"receipts": receipts},
        agent=agent,
    )


# -- the tenant and the store


def queue_growing(tenant: str, depths: Sequence[int], least: int) -> Anomaly | None:
    """Each of the last snapshots had more messages than the one before."""
    last = depths[-GROWING_SNAPSHOTS:]
    is_growing = len(last) == GROWING_SNAPSHOTS and all(before < after for before, after in pairwise(last))
    if not is_growing or last[-1] - last[0] < least:
        return None
    return Anomaly(
        kind="queue_growing",
        severity="warning",
        subject=tenant,
        text=f"the mailboxes of {tenant} fill: {last[0]:,} messages became {last[-1]:,}",
        evidence={"before": last[0], "now": last[-1]},
    )


def clock_skew(instance: str, behind_ms: int, most_ms: int) -> Anomaly | None:
    """Even its quickest event was logged much later, or earlier, than it says."""
    if abs(behind_ms) < most_ms:
        return None
    where = "behind" if behind_ms > 0 else "ahead of"
    return Anomaly(
        kind="clock_skew",
        severity="critical",
        subject=instance,
        text=f"the clock of instance {instance} is {abs(behind_ms)} ms {where} the store's",
        evidence={"behind_ms": behind_ms},
        instance=instance,
    )


def wake_path_broken(instance: str, unanswered: int, most: int) -> Anomaly | None:
    """It is alive and does not answer what it is told: its sessions get mail late."""
    if unanswered < most:
        return None
    return Anomaly(
        kind="wake_path_broken",
        severity="critical",
        subject=instance,
        text=f"instance {instance} did not hear {unanswered} wakes in a row",
        evidence={"unanswered": unanswered},
        instance=instance,
    )


def store_regressed(shard: int, regress: Regress) -> Anomaly:
    """What was promised there is gone: by a failover, a power cut, or a backup that was restored."""
    return Anomaly(
        kind="store_regressed",
        severity="critical",
        subject=f"shard {shard}",
        text=f"shard {shard} of the store went back {regress.seconds:.1f} s in time: "
        f"at least {regress.entries} entries of its event log are lost",
        evidence=regress.as_fields(),
    )


def _messages(count: float) -> str:
    return f"{count:.0f} message{'s' if round(count) != 1 else ''}"
