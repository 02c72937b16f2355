"""What is seen: messages as they arrive, their lives, and who has how many."""

import pytest
from playwright.async_api import Browser, expect

from tests.agents import message, messages
from tests.proxy import CutProxy
from tests.system.conftest import Room
from tests.system.page.conftest import Dashboard, visitor

pytestmark = pytest.mark.xdist_group("page")


async def test_a_message_is_seen_as_it_arrives_and_its_life_is_one_click_away(dashboard: Dashboard) -> None:
    room = dashboard.room
    alice, bob = await room.agents("alice", "bob")
    await dashboard.sign_in()
    await dashboard.go("live")
    await expect(dashboard.page.get_by_text("live", exact=True)).to_be_visible()

    await alice.sent(message("order-1", "bob", type="job"))
    await dashboard.row("order-1", "accepted").get_by_role("link", name="order-1").click()

    await expect(dashboard.heading("order-1")).to_be_visible()
    steps = dashboard.page.get_by_role("listitem")
    await expect(steps.nth(0)).to_contain_text("accepted")
    await expect(steps.nth(1)).to_contain_text("taken")
    await expect(steps.last).to_contain_text("held by its session")  # where it is now, and why
    await bob.ack(await bob.delivery())
    await expect(steps.last).to_contain_text("acked")
    await expect(dashboard.page.get_by_role("main")).to_contain_text("Whole life")


async def test_an_id_that_two_senders_chose_is_two_lives(dashboard: Dashboard) -> None:
    alice, carol = await dashboard.room.agents("alice", "carol")
    await alice.sent(message("same", "bob"))
    await carol.sent(message("same", "bob"))
    await dashboard.sign_in()

    await dashboard.go("messages", "same")

    for name in ("alice", "carol"):
        await expect(dashboard.page.get_by_role("heading", name=f"{name} → bob")).to_be_visible()


async def test_the_mailbox_says_why_a_message_waits(dashboard: Dashboard) -> None:
    alice = await dashboard.room.agent("alice")
    await alice.sent(message("now", "bob"), message("later", "bob", delay_s=500))
    await dashboard.sign_in()

    await dashboard.go("agent", dashboard.room.address("bob"))

    await expect(dashboard.row("now", "queued")).to_contain_text("nobody connected")
    await expect(dashboard.row("later", "delayed")).to_contain_text("delayed by its sender, in 8m")
    await dashboard.page.get_by_label("State").select_option("delayed")
    await expect(dashboard.row("now")).to_have_count(0)
    await expect(dashboard.row("later")).to_be_visible()


async def test_what_is_held_names_its_holder(dashboard: Dashboard) -> None:
    alice, bob = await dashboard.room.agents("alice", "bob")
    await alice.sent(message("mine", "bob"))
    await bob.delivery()
    await dashboard.sign_in()

    await dashboard.go("agent", dashboard.room.address("bob"), tab="holds")

    await expect(dashboard.row("mine", bob.welcome["session"])).to_contain_text("with its session")


async def test_hostile_text_stays_text(dashboard: Dashboard) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    alice, bob = await dashboard.room.agents("alice", "bob")
    await alice.sent(message("<b>id</b>", "bob", {"text": evil}, type=evil[:80], max_attempts=1))
    await bob.settle("nack", await bob.delivery(), reason=evil, delay_s=0)
    await dashboard.sign_in()

    await dashboard.go("agent", dashboard.room.address("bob"), tab="dead")

    await expect(dashboard.row("<b>id</b>")).to_contain_text(evil)
    await dashboard.row("<b>id</b>").locator("summary").last.click()
    await expect(dashboard.row("<b>id</b>").locator("pre")).to_contain_text("onerror")
    await dashboard.row("<b>id</b>").get_by_role("link", name="<b>id</b>").click()
    await expect(dashboard.heading("<b>id</b>")).to_be_visible()
    await expect(dashboard.page.get_by_role("listitem").last).to_contain_text(evil)
    assert await dashboard.page.evaluate("document.querySelectorAll('main script, main img').length") == 0
    assert "owned" not in await dashboard.page.title()


async def test_the_tail_goes_on_exactly_where_it_was_cut(browser: Browser, room: Room) -> None:
    alice = await room.agent("alice")
    async with (
        CutProxy(int(room.a.url.rpartition(":")[2])) as proxy,
        visitor(browser, room, f"http://127.0.0.1:{proxy.port}") as visit,
    ):
        await visit.sign_in()
        await visit.go("live", kind="accepted")
        await expect(visit.page.get_by_text("live", exact=True)).to_be_visible()
        await alice.sent(message("before", "bob"))
        await expect(visit.row("before")).to_be_visible()

        proxy.refuse()
        proxy.cut()
        await expect(visit.page.get_by_text("cut off")).to_be_visible()
        await alice.sent(*(message(f"during-{n}", "bob") for n in range(3)))
        await proxy.accept()

        await expect(visit.row("during-")).to_have_count(3)
        await expect(visit.row("before")).to_have_count(1)


async def test_failures_have_a_list_of_their_own(dashboard: Dashboard) -> None:
    alice, bob = await dashboard.room.agents("alice", "bob")
    await alice.sent(message("good", "bob"), message("bad", "bob", max_attempts=1))
    good, bad = await bob.deliveries(2)
    await bob.ack(good)
    await bob.settle("nack", bad, reason="cannot parse", delay_s=0)
    await dashboard.sign_in()

    await dashboard.go("failed")

    await expect(dashboard.row("bad", "dead")).to_contain_text("cannot parse")
    await expect(dashboard.row("good")).to_have_count(0)


async def test_agents_are_searched_sorted_and_paged_by_the_relay(dashboard: Dashboard) -> None:
    alice = await dashboard.room.agent("alice")
    await alice.sent(*(message(to=f"worker-{n:02}") for n in range(60)))
    await dashboard.sign_in()

    await dashboard.go("agents")

    await expect(dashboard.row("worker-")).to_have_count(49)  # and alice
    await dashboard.button("Next").click()
    await expect(dashboard.row("worker-")).to_have_count(11)
    await dashboard.page.get_by_label("Find").fill("KER-41")
    await expect(dashboard.row("worker-")).to_have_count(1)
    await expect(dashboard.row("worker-41")).to_contain_text("nobody connected")
    await dashboard.button("Depth").click()
    await expect(dashboard.page.get_by_label("Sort by")).to_have_value("depth")
    await expect(dashboard.page.get_by_text("as of the latest snapshot")).to_be_visible()


async def test_a_message_is_sent_from_the_page_and_its_reply_shown(dashboard: Dashboard) -> None:
    bob = await dashboard.room.agent("bob")
    await dashboard.sign_in()
    await dashboard.go("send")

    await dashboard.page.get_by_label("To", exact=True).fill("bob")
    await dashboard.page.get_by_label("Payload").fill('{"sum": [1, 2]}')
    await dashboard.page.get_by_label("Ask for a reply").check()
    await dashboard.button("Send as", exact=False).click()
    asked = await bob.delivery()
    await bob.say("reply", entry=asked["entry"], payload={"sum": 3})

    assert (asked["payload"], asked["from"]) == ({"sum": [1, 2]}, dashboard.room.address("root"))
    await expect(dashboard.page.get_by_role("main")).to_contain_text('"sum": 3')
    await expect(dashboard.page.get_by_role("main")).to_contain_text("replied")


async def test_the_overview_counts_what_is_there(dashboard: Dashboard) -> None:
    alice, bob = await dashboard.room.agents("alice", "bob")
    await alice.sent(*messages(4, "carol"))
    await alice.sent(*messages(2, "bob"))
    await bob.ack(*await bob.deliveries(2))

    await dashboard.sign_in()

    tiles = dashboard.page.locator(".tile")
    await expect(tiles.filter(has_text="In mailboxes")).to_contain_text("4")
    await expect(tiles.filter(has_text="Agents online")).to_contain_text("of 3")
    await expect(dashboard.page.get_by_role("img", name="Messages a second")).to_be_visible()
