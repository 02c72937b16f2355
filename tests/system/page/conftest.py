"""The dashboard in a real browser, against a real relay."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, ConsoleMessage, Locator, Page, async_playwright, expect

from tests.agents import WAIT_S
from tests.system.conftest import Room

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
OPTIONS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
MAY_ACT = "send receive inspect admin"
MAY_LOOK = "inspect"
WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 360, "height": 740}

expect.set_options(timeout=WAIT_S * 1_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here needs the browser; those beside this folder do not."""
    if CHROMIUM is None:
        skip = pytest.mark.skip(reason="needs Chromium (Debian: apt-get install chromium)")
        for item in items:
            if item.nodeid.startswith("tests/system/page/"):
                item.add_marker(skip)


class Dashboard:
    """One visitor. What its console says is kept, for nothing may go wrong there."""

    def __init__(self, page: Page, room: Room, url: str) -> None:
        self.page = page
        self.room = room
        self.url = url
        self.complaints: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} ({message.location})")

    async def open(self) -> None:
        await self.page.goto(self.url)

    async def sign_in(self, scope: str = MAY_ACT, name: str = "root") -> None:
        await self.open()
        await self.page.get_by_label("Token").fill(self.room.token(name, scope))
        await self.page.get_by_role("button", name="Sign in").click()
        await expect(self.heading("Overview")).to_be_visible()

    async def go(self, *path: str, **query: str) -> None:
        """To a view, as a link would lead there."""
        parts = "/".join(await self.page.evaluate("parts => parts.map(encodeURIComponent)", list(path)))
        words = "&".join(f"{name}={value}" for name, value in query.items())
        await self.page.evaluate("to => { location.hash = to; }", f"#/{parts}" + (f"?{words}" if words else ""))
        await self.shown()

    async def shown(self) -> None:
        """Returns when the view has what it shows."""
        await expect(self.page.locator("main:not([aria-busy])")).to_be_visible()

    def heading(self, name: str) -> Locator:
        return self.page.get_by_role("heading", name=name, exact=True, level=1)

    def button(self, name: str, exact: bool = True) -> Locator:
        return self.page.get_by_role("button", name=name, exact=exact)

    def row(self, *texts: str) -> Locator:
        """The row of a table that has all of these in it."""
        rows = self.page.get_by_role("row")
        for text in texts:
            rows = rows.filter(has_text=text)
        return rows

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")


@asynccontextmanager
async def visitor(browser: Browser, room: Room, url: str | None = None, **context: Any) -> AsyncIterator[Dashboard]:
    opened = await browser.new_context(**({"viewport": WIDE} | context))
    dashboard = Dashboard(await opened.new_page(), room, url or room.a.url)
    try:
        yield dashboard
    finally:
        await opened.close()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    assert CHROMIUM is not None
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        await browser.close()


@pytest.fixture
async def dashboard(browser: Browser, room: Room) -> AsyncIterator[Dashboard]:
    """A visitor on a wide screen whose console stays silent."""
    async with visitor(browser, room) as visit:
        yield visit
    assert visit.complaints == []
