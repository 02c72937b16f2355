"""For everybody: both themes, narrow screens, a keyboard alone, and what axe-core finds."""

import json
from importlib.resources import files
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.agents import message
from tests.system.conftest import Room
from tests.system.page.conftest import NARROW, WIDE, Dashboard, visitor

pytestmark = pytest.mark.xdist_group("page")

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
SERIOUS = ("serious", "critical")
VIEWS = ("", "agents", "live", "messages", "failed", "anomalies", "instances", "send")
TABS = ("mailbox", "holds", "dead", "events")
FOCUSED = """(focused => (focused.getAttribute("aria-label") ?? focused.labels?.[0]?.textContent
    ?? focused.textContent).trim())(document.activeElement)"""
EVERYTHING = "send receive inspect admin metrics operator"


async def faults(dashboard: Dashboard) -> list[str]:
    """What axe-core finds serious on the page as it is now."""
    await dashboard.page.evaluate(AXE)
    found: dict[str, Any] = await dashboard.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{fault['id']}: {json.dumps([node['html'] for node in fault['nodes']])}"
        for fault in found["violations"]
        if fault["impact"] in SERIOUS
    ]


@pytest.fixture
async def busy(room: Room) -> Room:
    """A room in which there is something to see in every view."""
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(message("held", "bob"), message("bad", "bob", max_attempts=1), message("waits", "carol"))
    _, bad = await bob.deliveries(2)
    await bob.settle("nack", bad, reason="cannot parse", delay_s=0)
    return room


@pytest.mark.parametrize(("theme", "viewport"), [("light", WIDE), ("dark", NARROW)])
async def test_no_view_has_a_serious_fault(browser: Browser, busy: Room, theme: str, viewport: dict[str, int]) -> None:
    found: dict[str, list[str]] = {}
    async with visitor(browser, busy, color_scheme=theme, viewport=viewport, reduced_motion="reduce") as visit:
        await visit.open()
        found["welcome"] = await faults(visit)
        await visit.sign_in(EVERYTHING)
        for view in VIEWS:
            await visit.go(view)
            found[view] = await faults(visit)
        for tab in TABS:
            await visit.go("agent", busy.address("bob"), tab=tab)
            found[tab] = await faults(visit)
        await visit.go("messages", "held")
        found["timeline"] = await faults(visit)
        await visit.go("agent", busy.address("bob"), tab="dead")
        for act in ("Pause", "Revive …", "Edit and re-send"):
            await visit.button(act).click()
            found[act] = await faults(visit)
            await visit.page.keyboard.press("Escape")

    assert {view: wrong for view, wrong in found.items() if wrong} == {}
    assert visit.complaints == []


@pytest.mark.parametrize(("theme", "ground"), [("light", "rgb(246, 247, 249)"), ("dark", "rgb(13, 17, 23)")])
async def test_the_page_follows_the_theme_of_the_system_or_the_one_chosen(
    browser: Browser, room: Room, theme: str, ground: str
) -> None:
    other = {"light": "dark", "dark": "light"}[theme]
    async with visitor(browser, room, color_scheme=theme) as visit:
        await visit.sign_in()
        colour = "getComputedStyle(document.body).backgroundColor"
        assert await visit.page.evaluate(colour) == ground
        while await visit.page.get_by_role("button", name=f"Theme: {other}").count() == 0:
            await visit.button("Theme:", exact=False).click()
        assert await visit.page.evaluate(colour) != ground


async def test_nothing_is_cut_off_on_a_narrow_screen(browser: Browser, busy: Room) -> None:
    too_wide: dict[tuple[str, ...], int] = {}
    async with visitor(browser, busy, viewport=NARROW) as visit:
        await visit.sign_in(EVERYTHING)
        for view in (*((name,) for name in VIEWS), ("agent", busy.address("bob")), ("messages", "held")):
            await visit.go(*view)
            width: int = await visit.page.evaluate("document.documentElement.scrollWidth")
            if width > NARROW["width"]:
                too_wide[view] = width

    assert too_wide == {}
    assert visit.complaints == []


async def test_every_view_is_in_sight_in_the_menu_of_a_narrow_screen(browser: Browser, busy: Room) -> None:
    async with visitor(browser, busy, viewport=NARROW) as visit:
        await visit.sign_in(EVERYTHING)
        links = await visit.page.get_by_role("navigation", name="Views").get_by_role("link").all()
        boxes = [await link.bounding_box() for link in links]

    assert len(boxes) == len(VIEWS)
    assert [box for box in boxes if box is None or box["x"] < 0 or box["x"] + box["width"] > NARROW["width"]] == []


async def test_a_keyboard_is_enough(browser: Browser, busy: Room) -> None:
    """Sign in, walk to an agent, and pause it: with Tab, Enter, Escape and letters."""
    async with visitor(browser, busy) as visit:
        await visit.open()
        keyboard = visit.page.keyboard

        async def walk_to(name: str) -> None:
            """Tab until the focus is on something of this name."""
            for _ in range(60):
                await keyboard.press("Tab")
                focused = await visit.page.evaluate(FOCUSED)
                if focused == name:
                    return
            raise AssertionError(f"the focus never came to {name!r}")

        await walk_to("Token")
        await keyboard.insert_text(busy.token("root", "send receive inspect admin"))
        await keyboard.press("Enter")
        await expect(visit.heading("Overview")).to_be_visible()
        await keyboard.press("Shift+Tab")
        await walk_to("Agents")
        await keyboard.press("Enter")
        await expect(visit.heading("Agents")).to_be_visible()
        await expect(visit.row("bob")).to_be_visible()
        await walk_to("bob")
        await keyboard.press("Enter")
        await expect(visit.heading(busy.address("bob"))).to_be_visible()
        await walk_to("Pause")
        await keyboard.press("Enter")
        await expect(visit.dialog).to_be_visible()
        await keyboard.press("Escape")
        await expect(visit.dialog).to_have_count(0)
        assert await visit.page.evaluate("document.activeElement.textContent") == "Pause"  # where it was
        await keyboard.press("Enter")
        await expect(visit.dialog).to_contain_text("would stay in the mailbox")
        await walk_to("Pause")
        await keyboard.press("Enter")
        await expect(visit.page.get_by_role("main")).to_contain_text("Paused by")

    assert visit.complaints == []
