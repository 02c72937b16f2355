"""docs/limits.md says what the code does."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from relay.a2a import following, sending
from relay.core.presence import registrations
from relay.core.session import control_frames
from relay.http import long_poll
from relay.protocol import frames, message
from relay.server import connections as server
from relay.server import framing, turns
from relay.settings import Settings
from relay.store import keys
from relay.store.agents import agents
from relay.store.mailbox import settle
from relay.store.mailbox.accept import per_shard
from relay.store.redis.scripts import script
from relay.store.replies import receipts, replies
from relay.ws import connection

PAGE = (Path(__file__).parents[2] / "docs/limits.md").read_text()
ROWS = {row.split("|")[1].strip(): row for row in PAGE.splitlines() if row.startswith("| ")}


@pytest.mark.parametrize(
    ("row", "limit"),
    [
        ("parts of one reply", f"{settle.MAX_PARTS:,}"),
        ("answers that a full mailbox has no room for", f"{replies.OWED_MAX:,}"),
        ("outbox", f"{settle.OUTBOX_MAX:,} entries"),
        ("receipts of one sender", f"{receipts.RECEIPTS_MAX:,} entries"),
        ("blocked senders of one agent", f"{agents.MAX_BLOCKS:,}"),
        ("topics of one session", f"{control_frames.MAX_TOPICS:,}"),
        ("topics of one session", f"{control_frames.MAX_TOPICS_BYTES // 1_024} KiB"),
        ("calls that wait (long polls, streams)", f"{long_poll.MAX_LONG_POLLS}"),
        ("forwarded entries", f"{keys.FORWARDED_BUCKET_MS // 60_000} minutes"),
        ("card of an agent", f"{frames.MAX_CARD_BYTES // 1_024} KiB"),
        ("messages that continue an A2A task", f"{sending.MAX_TURNS}"),
        ("unanswered questions of one session", f"{control_frames.MAX_UNANSWERED}"),
        ("tasks that are read for A2A", f"{following.FETCHED_AT_ONCE}"),
        ("frames before `auth`", f"{connection.STRANGER_FRAMES} of any kind"),
        ("frames before `auth`", f"{connection.STRANGER_BYTES // 1_024} KiB"),
        ("input of one connection per turn of the event loop", f"{server.PIECE_BYTES // 1_024} KiB"),
        ("input of one connection per turn of the event loop", f"{framing.FRAMES_A_TURN} frames"),
        ("all connections over that limit", f"{turns.A_TURN_S * 1_000:.0f} ms"),
        ("`headers`", f"{message.MAX_HEADERS_BYTES:,}"),
        ("messages of one frame or call", f"{frames.MAX_MESSAGES_PER_FRAME}"),
        ("entries, agents or topics of one frame", f"{frames.MAX_ENTRIES_PER_FRAME:,}"),
    ],
)
def test_a_limit_is_what_the_page_says(row: str, limit: str) -> None:
    assert limit in ROWS[row]


def test_receipts_come_in_runs_of_what_the_page_says() -> None:
    run_bytes = re.search(r"^local RUN_BYTES = (\d+)", script("ack").text.decode(), re.MULTILINE)
    history = re.search(r"^local HISTORY_BYTES = (\d+)", script("nack").text.decode(), re.MULTILINE)

    assert run_bytes is not None
    assert history is not None
    assert f"about {int(run_bytes[1]) // 1_024} KiB" in ROWS["receipts of one sender"]
    assert f"{int(history[1]) // 1_024} KiB" in ROWS["failed attempts of a message"]


def test_every_setting_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`([A-Z][A-Z_]+[A-Z])`", PAGE))

    assert named - {spec.name.upper() for spec in fields(Settings)} == set()


def test_new_agents_are_limited_as_the_page_says() -> None:
    assert (registrations.TENANT_TIMES, registrations.BURST_S) == (10, 10.0)
    prose = " ".join(PAGE.split())
    assert "ten times that" in prose
    assert "ten seconds' worth" in prose


@pytest.mark.parametrize(("most", "shards", "share"), [(1_000, 1, 1_000), (1_000, 64, 32), (1, 64, 1), (7, 4, 4)])
def test_a_shard_has_twice_its_share(most: int, shards: int, share: int) -> None:
    assert per_shard(most, shards) == share
