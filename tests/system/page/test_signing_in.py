"""Who may look inside, and where the token is meanwhile."""

import re

import aiohttp
import pytest
from playwright.async_api import Browser, Request, expect

from relay.http.routes.dashboard import FILES
from tests.agents import message
from tests.system.conftest import Room
from tests.system.page.conftest import MAY_LOOK, Dashboard, visitor

pytestmark = pytest.mark.xdist_group("page")


async def test_a_visitor_learns_what_this_is_and_how_to_get_a_token(dashboard: Dashboard) -> None:
    await dashboard.open()

    await expect(dashboard.heading("relay")).to_be_visible()
    await expect(dashboard.page.get_by_text("A durable store-and-forward relay for agents")).to_be_visible()
    await expect(dashboard.page.get_by_text("relay token --agent")).to_be_visible()
    await expect(dashboard.page.get_by_role("link", name="The HTTP API")).to_have_attribute("href", "docs")
    await expect(dashboard.page.get_by_role("navigation")).to_have_count(0)


@pytest.mark.parametrize("text", ["not a token", "a.b.c"])
async def test_what_is_no_token_is_refused_on_the_spot(dashboard: Dashboard, text: str) -> None:
    await dashboard.open()

    await dashboard.page.get_by_label("Token").fill(text)
    await dashboard.button("Sign in").click()

    await expect(dashboard.page.get_by_role("alert")).to_contain_text("That is not a token of a relay")


async def test_a_token_that_the_relay_does_not_know_opens_nothing(browser: Browser, room: Room) -> None:
    async with visitor(browser, room) as visit:
        await visit.open()

        await visit.page.get_by_label("Token").fill(room.token("root", "inspect", ttl_s=-60))
        await visit.button("Sign in").click()

        await expect(visit.page.get_by_role("alert")).to_contain_text("the token has expired")
        await expect(visit.page.get_by_label("Token")).to_be_visible()
        assert all("401" in complaint for complaint in visit.complaints)


async def test_the_token_is_in_no_address_and_no_storage(dashboard: Dashboard) -> None:
    asked: list[Request] = []
    dashboard.page.on("request", lambda request: asked.append(request))
    await dashboard.sign_in()
    await dashboard.go("agents")
    await expect(dashboard.heading("Agents")).to_be_visible()

    start = dashboard.room.token("root")[:20]  # every token of the relay begins so
    assert any(start in request.headers.get("authorization", "") for request in asked)
    assert [request.url for request in asked if start in request.url] == []
    kept = "[document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage), location.href].join()"
    assert start not in await dashboard.page.evaluate(kept)
    await dashboard.page.reload()
    await expect(dashboard.page.get_by_label("Token")).to_have_value("")


async def test_signing_out_forgets_everything(dashboard: Dashboard) -> None:
    await dashboard.sign_in()

    await dashboard.button("Sign out").click()

    await expect(dashboard.page.get_by_label("Token")).to_have_value("")
    await expect(dashboard.page.get_by_role("navigation")).to_have_count(0)


async def test_a_token_that_may_only_look_sees_no_act(dashboard: Dashboard) -> None:
    alice = await dashboard.room.agent("alice")
    await alice.sent(message("m-1"))
    await dashboard.sign_in(MAY_LOOK, "viewer")

    for view in ("mailbox", "dead"):
        await dashboard.go("agent", dashboard.room.address("bob"), tab=view)
        await expect(dashboard.heading(dashboard.room.address("bob"))).to_be_visible()
        acts = re.compile("Pause|Resume|Cancel|Revive|Drop|Send|re-send")
        await expect(dashboard.page.get_by_role("main").get_by_role("button", name=acts)).to_have_count(0)
    await dashboard.go("send")
    await expect(dashboard.page.get_by_text("Your token may not send here")).to_be_visible()
    menu = dashboard.page.get_by_role("navigation", name="Views").get_by_role("link")
    await expect(menu).to_have_text(["Overview", "Agents", "Live", "Messages", "Failed", "Anomalies"])


async def test_the_page_runs_nothing_that_is_not_its_own(room: Room) -> None:
    async with aiohttp.ClientSession() as http:
        for path in ("/", *(f"/web/{name}" for name in FILES)):
            async with http.get(f"{room.a.url}{path}") as answer:
                assert answer.status == 200
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
                assert "unsafe" not in policy
                body = await answer.text()
            assert (
                re.findall(
                    r"<script(?![^>]*\bsrc=)|<style|\bon\w+=\"|innerHTML|outerHTML|insertAdjacent|document\.write", body
                )
                == []
            )
            assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)[\w.]+", body) == []


async def test_every_page_has_the_headers_that_keep_others_out(room: Room) -> None:
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{room.a.url}/openapi.json") as answer:
            paths = (await answer.json())["paths"]
        pages = [
            path.format(file="index.html")
            for path, methods in paths.items()
            if "text/html" in methods.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        ]
        for path in pages:
            async with http.get(f"{room.a.url}{path}") as answer:
                assert (answer.status, answer.content_type) == (200, "text/html"), path
                policy = set(answer.headers["Content-Security-Policy"].split("; "))
                assert {
                    "default-src 'none'",
                    "frame-ancestors 'none'",
                    "base-uri 'none'",
                    "form-action 'none'",
                } <= policy
                assert {"require-trusted-types-for 'script'", "trusted-types 'none'"} <= policy
                assert "unsafe" not in answer.headers["Content-Security-Policy"]
                assert answer.headers["X-Frame-Options"] == "DENY"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert {"/", "/docs"} <= set(pages)


async def test_what_the_browser_has_is_not_sent_again(room: Room) -> None:
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{room.a.url}/web/style.css") as first:
            etag = first.headers["ETag"]
        async with http.get(f"{room.a.url}/web/style.css", headers={"If-None-Match": etag}) as again:
            assert (again.status, await again.read()) == (304, b"")
        async with http.get(f"{room.a.url}/web/style.css", headers={"If-None-Match": '"other"'}) as other:
            assert other.status == 200
        async with http.get(f"{room.a.url}/web/../app.py") as outside:
            assert outside.status == 404
