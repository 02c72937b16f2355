"""What is done from the page: nothing before its dry run was seen, and everything by name."""

import pytest
from playwright.async_api import expect

from tests.agents import Agent, message, until
from tests.system.page.conftest import Dashboard

pytestmark = pytest.mark.xdist_group("page")


async def a_dead_letter(dashboard: Dashboard, *ids: str) -> Agent:
    """Messages that bob could not handle; bob."""
    alice, bob = await dashboard.room.agents("alice", "bob")
    await alice.sent(*(message(id, "bob", {"id": id}, max_attempts=1, type="job") for id in ids))
    await bob.settle("nack", *await bob.deliveries(len(ids)), reason="cannot parse", delay_s=0)
    await until(lambda: len(dashboard.room.dead("bob")) == len(ids))
    return bob


async def test_an_agent_is_paused_and_resumed(dashboard: Dashboard) -> None:
    room = dashboard.room
    alice, bob = await room.agents("alice", "bob")
    await dashboard.sign_in()
    await dashboard.go("agent", room.address("bob"))

    await dashboard.button("Pause").click()
    await expect(dashboard.dialog).to_contain_text("It is online: it stays connected and receives nothing.")
    await dashboard.dialog.get_by_label("Reason").fill("moving house")
    await dashboard.dialog.get_by_role("button", name="Pause").click()
    await expect(dashboard.page.get_by_role("main")).to_contain_text(f"Paused by {room.address('root')}")
    await expect(dashboard.page.get_by_role("main")).to_contain_text("moving house")
    await alice.sent(message("m-1", "bob"))
    await expect(dashboard.row("m-1")).to_contain_text("paused")
    assert bob.got_deliveries() == []

    await dashboard.button("Resume").click()

    assert (await bob.delivery())["id"] == "m-1"
    await expect(dashboard.button("Pause")).to_be_visible()


async def test_a_dead_letter_is_revived_after_a_dry_run(dashboard: Dashboard) -> None:
    bob = await a_dead_letter(dashboard, "m-1", "m-2")
    await dashboard.sign_in()
    await dashboard.go("agent", dashboard.room.address("bob"), tab="dead")
    await dashboard.page.get_by_label("Choose m-2").check()

    await dashboard.button("Revive …").click()
    await expect(dashboard.dialog.get_by_role("button", name="Revive", exact=True)).to_be_disabled()
    await dashboard.dialog.get_by_role("button", name="Dry run").click()
    await expect(dashboard.dialog).to_contain_text("Dry run: 1 message would be revived.")
    assert len(dashboard.room.dead("bob")) == 2
    await dashboard.dialog.get_by_role("button", name="Revive 1 message").click()
    await expect(dashboard.dialog).to_contain_text("1 message revived.")
    await dashboard.dialog.get_by_role("button", name="Close").click()

    again = await bob.delivery()
    assert (again["id"], again["attempt"]) == ("m-2", 1)
    await expect(dashboard.row("m-2")).to_have_count(0)
    await expect(dashboard.row("m-1")).to_be_visible()


async def test_another_filter_needs_another_dry_run(dashboard: Dashboard) -> None:
    await a_dead_letter(dashboard, "m-1")
    await dashboard.sign_in()
    await dashboard.go("agent", dashboard.room.address("bob"), tab="dead")
    await dashboard.button("Drop …").click()
    await dashboard.dialog.get_by_role("button", name="Dry run").click()
    await expect(dashboard.dialog.get_by_role("button", name="Drop 1 message")).to_be_enabled()

    await dashboard.dialog.get_by_label("Type").fill("another")

    await expect(dashboard.dialog.get_by_role("button", name="Drop", exact=True)).to_be_disabled()
    await dashboard.dialog.get_by_role("button", name="Dry run").click()
    await expect(dashboard.dialog).to_contain_text("Dry run: 0 messages would be dropped.")
    await dashboard.dialog.get_by_role("button", name="Cancel").click()
    await expect(dashboard.dialog).to_have_count(0)
    assert len(dashboard.room.dead("bob")) == 1


async def test_an_edited_copy_of_a_dead_letter_is_sent(dashboard: Dashboard) -> None:
    bob = await a_dead_letter(dashboard, "m-1")
    await dashboard.sign_in()
    await dashboard.go("agent", dashboard.room.address("bob"), tab="dead")

    await dashboard.button("Edit and re-send").click()
    await dashboard.dialog.get_by_label("Payload").fill('{"id": "mended"}')
    await dashboard.dialog.get_by_role("button", name="Dry run").click()
    await dashboard.dialog.get_by_role("button", name="Re-send 1 message").click()

    copy = await bob.delivery()
    assert (copy["payload"], copy["from"]) == ({"id": "mended"}, dashboard.room.address("root"))
    assert len(dashboard.room.dead("bob")) == 1


async def test_a_copy_has_the_numbers_that_its_sender_wrote_also_those_that_a_browser_cannot_hold(
    dashboard: Dashboard,
) -> None:
    deep = "[" * 900 + "]" * 900
    odd = f'{{"far":1e999,"long":{"9" * 400},"id":-12345678901234567890,"half":1.5,"deep":{deep}}}'
    alice, bob = await dashboard.room.agents("alice", "bob")
    await alice.say_text(
        f'{{"op":"send","messages":[{{"id":"m-1","to":"bob","type":"old","max_attempts":1,"payload":{odd}}}]}}'
    )
    await bob.settle("nack", await bob.delivery(), reason="cannot parse", delay_s=0)
    await until(lambda: dashboard.room.dead("bob"))
    await dashboard.sign_in()
    await dashboard.go("agent", dashboard.room.address("bob"), tab="dead")

    await dashboard.row("m-1").locator("summary").last.click()
    await expect(dashboard.row("m-1").locator("pre")).to_contain_text('"far": 1e999')
    await expect(dashboard.row("m-1").locator("pre")).to_contain_text('"id": -12345678901234567890')
    await dashboard.button("Edit and re-send").click()
    await dashboard.dialog.get_by_label("Type").last.fill("new")
    await dashboard.dialog.get_by_role("button", name="Dry run").click()
    await dashboard.dialog.get_by_role("button", name="Re-send 1 message").click()

    assert (await bob.delivery())["type"] == "new"
    assert f'"payload":{odd}' in bob.raw[-1]


async def test_a_waiting_message_is_cancelled_from_its_own_page(dashboard: Dashboard) -> None:
    alice = await dashboard.room.agent("alice")
    await alice.sent(message("m-1", "bob"))
    await dashboard.sign_in()
    await dashboard.go("messages", "m-1")

    await dashboard.button("Cancel …").click()
    await dashboard.dialog.get_by_role("button", name="Dry run").click()
    await dashboard.dialog.get_by_role("button", name="Cancel 1 message").click()
    await dashboard.dialog.get_by_role("button", name="Close").click()

    await expect(dashboard.page.get_by_role("listitem").last).to_contain_text("cancelled")
    assert dashboard.room.depth("bob") == 0
