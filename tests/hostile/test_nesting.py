"""Payloads nested as deeply as the relay takes them: whoever looks at one, or gets it, sees the others too.

How deep that is depends on the stack at the place where a frame is read. So what is taken there must not be read
through anywhere else. With the log at debug and with traces each delivery is looked at once more.
"""

import re

import pytest

from tests.agents import until
from tests.callers import Caller, caller
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("nesting")

SETTINGS = {"recheck_s": 30, "log_level": "debug", "mailbox_max_messages": 200}
DEPTHS = range(900, 1_000)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.fixture
async def deepest(room: Room) -> int:
    """How many of these depths alice may send; they are in bob's mailbox."""
    alice = await room.agent("alice")
    for depth in DEPTHS:
        message = f'{{"id":"m-{depth}","to":"bob","max_attempts":1,"payload":{nested(depth)}}}'
        await alice.say_text(f'{{"op":"send","messages":[{message}]}}')
    await until(lambda: len(alice.got("accepted")) + len(alice.got("refused")) + len(alice.got("error")) >= 1)
    await alice.settled_down()
    return room.depth("bob")


async def pages(who: Caller, path: str) -> str:
    """The text of all pages: a test cannot read such JSON either."""
    answer = await who.get(path, limit=1_000)
    text = answer.text
    while cursor := re.search(r'"cursor":"([^"]+)"', answer.text[-200:]):
        answer = await who.get(path, limit=1_000, cursor=cursor[1])
        text += answer.text
    assert answer.status == 200, answer.text[:500]
    return text


async def test_the_deepest_payload_hides_no_other(room: Room, deepest: int) -> None:
    bob, eve = caller(room, "bob", "receive inspect"), caller(room, "eve", "inspect")

    seen = await pages(eve, "/v1/agents/bob/messages")
    leased = (await bob.post("/v1/agents/bob/lease", {"max": 100})).text
    held = re.findall(r'"entry":"([^"]+)".{0,100}?"lock_token":"([^"]+)"', leased)
    given_up = [{"entry": entry, "lock_token": token} for entry, token in held]
    await bob.post("/v1/agents/bob/settle", {"nack": given_up})
    dead = await pages(bob, "/v1/agents/bob/dead")

    assert 0 < deepest < len(DEPTHS), "these are the depths at the edge"
    for text in (seen, leased, dead):
        assert [text.count(f"{nested(900 + n)}") > 0 for n in range(deepest)] == [True] * deepest
        assert text.count('"payload":') == deepest
