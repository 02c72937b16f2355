"""What an operator reads of real processes: log lines and metrics."""

import aiohttp

from tests.agents import message, until
from tests.system.conftest import Instance, Room
from tests.unit.telemetry.test_metrics import samples


async def scraped(at: Instance) -> dict[str, float]:
    async with aiohttp.ClientSession() as http, http.get(f"{at.url}/metrics") as answer:
        return samples(await answer.read())


async def test_a_session_that_ends_is_logged_with_why_how_long_and_what_it_held(room: Room) -> None:
    alice, bob = await room.agent("alice"), await room.agent("bob")
    await alice.send(message("m-1"))
    await bob.delivery()

    await bob.close()
    await room.agent("alice")

    def ended() -> dict[str, dict[str, object]]:
        lines = room.a.events("session_ended")
        return {line["agent"].partition("/")[2]: line for line in lines if line["agent"].startswith(room.tenant + "/")}

    await until(lambda: ended().keys() == {"alice", "bob"})
    assert (ended()["bob"]["reason"], ended()["bob"]["held"]) == ("disconnected", 1)
    assert ended()["alice"]["reason"] == "replaced"
    assert all(0 <= float(str(line["duration_s"])) < 60 for line in ended().values())
    assert all(str(line["at"]).endswith("+00:00") for line in ended().values())


async def test_requests_are_counted_by_route(room: Room) -> None:
    before = await scraped(room.a)
    async with aiohttp.ClientSession() as http:
        for path in ("/v1/agents/bob", "/v1/agents/carol", "/nowhere", "/nowhere/else"):
            await http.get(room.a.url + path)

    after = await scraped(room.a)

    def more(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert more("relay_http_requests_total,method=GET,route=/v1/agents/{agent},status=401") == 2
    assert more("relay_http_requests_total,method=none,route=none,status=404") == 2
    assert more("relay_auth_failures_total,door=http") == 2
