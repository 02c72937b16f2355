"""The agent in docs/protocol.md, copied as it stands."""

import asyncio
import re
import sys
from pathlib import Path

from tests.agents import message
from tests.system.conftest import Room

PAGE = (Path(__file__).parents[2] / "docs/protocol.md").read_text()


async def test_the_agent_of_the_page_answers_what_it_is_sent(room: Room) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    alice = await room.agent("alice")
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, room.a.url, room.token("bob"))
    try:
        await alice.sent(message("m-1", "bob", {"n": 1}))
        answer = await alice.delivery()
        (receipt,) = await alice.receipts(1)
    finally:
        agent.kill()
        await agent.wait()

    assert (answer["from"], answer["id"], answer["payload"]) == (room.address("bob"), "re-m-1", {"n": 1})
    assert (receipt["id"], receipt["state"]) == ("m-1", "delivered")
