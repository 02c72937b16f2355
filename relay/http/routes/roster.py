"""The roster: agents, searched and sorted, a page at a time."""

from collections.abc import Callable
from typing import Annotated, Literal

from aiohttp import web
from msgspec import UNSET, Meta, UnsetType

from relay.auth import Identity
from relay.errors import Malformed
from relay.http.app_keys import INSTANCE
from relay.http.auth import identity, tenant_asked_for
from relay.http.operation import operation
from relay.http.query import MAX_ANSWER_BYTES, TenantPage, read_query
from relay.http.responses import json_response
from relay.http.routes.agents import after_agent, names_from, parse_agent_cursor, shown, view_of
from relay.http.schemas.agents import AgentPage, AgentShown
from relay.http.schemas.fields import doc
from relay.protocol.address import is_address
from relay.store.agents.agents import DESCRIBE_AT_ONCE, Description
from relay.store.agents.rates import LIST
from relay.store.store import Store
from relay.store.watching.snapshots import Ranking

routes = web.RouteTableDef()

MOST_SEARCHED = 5_000  # names that one page looks at

Cursor = str | UnsetType


class RosterQuery(TenantPage):
    search: Annotated[
        str, Meta(max_length=64), doc("Only agents whose name contains this, in capitals or not.", "bo")
    ] = ""
    sort: Annotated[
        Literal["name", "depth", "oldest", "dead", "rate"] | None,
        doc("By name, all; or the first by what they have or do, as of the latest snapshot.", "depth"),
    ] = None

    def fits(self, agent: str) -> bool:
        return self.search.lower() in agent.partition("/")[2].lower()


@routes.get("/v1/agents")
@operation("send", "receive", "inspect", query=RosterQuery, answers={200: AgentPage}, price=LIST)
async def listing(request: web.Request) -> web.Response:
    """List agents.

    Those of the token's tenant, or of another for an operator, a page at a time. A search looks at 5,000 names a page:
    it may be short, or empty, and still have a cursor.
    """
    store, who = request.app[INSTANCE].store, identity(request)
    asked = read_query(request, RosterQuery)
    tenant = tenant_asked_for(asked.tenant, who)
    ranking = await store.snapshots.ranking(tenant) if asked.sort else Ranking(at_ms=0)
    if asked.sort is None:
        names, cursor = await _as_stored(store, tenant, asked)
    elif asked.sort == "name":
        names, cursor = await _by_name(store, tenant, asked)
    else:
        names, cursor = [name for name in ranking.by.get(asked.sort, []) if asked.fits(name)][: asked.limit], UNSET
    described = await _described(store, names, who)
    if len(described) < len(names):
        last = described[-1].address
        cursor = after_agent(store, last) if asked.sort is None else last
    now_ms = store.clock.now_ms()
    return json_response(AgentPage([_with_rates(shown(agent, now_ms), ranking) for agent in described], cursor))


async def _as_stored(store: Store, tenant: str, asked: RosterQuery) -> tuple[list[str], Cursor]:
    """Shard after shard, which costs the least."""
    looked_at = MOST_SEARCHED if asked.search else asked.limit + 1
    names = await names_from(store, tenant, *parse_agent_cursor(asked.cursor, store, tenant), looked_at)
    return _page(names, len(names) == looked_at, asked, lambda name: after_agent(store, name))


async def _by_name(store: Store, tenant: str, asked: RosterQuery) -> tuple[list[str], Cursor]:
    if asked.cursor and not (asked.cursor.startswith(f"{tenant}/") and is_address(asked.cursor)):
        raise Malformed("cursor: expected one that came with a page")
    most = MOST_SEARCHED // store.keys.shards if asked.search else asked.limit + 1
    names, is_all = await store.roster.by_name(tenant, asked.cursor or "", most)
    return _page(names, not is_all, asked, str)


def _page(
    names: list[str], is_more: bool, asked: RosterQuery, cursor_of: Callable[[str], str]
) -> tuple[list[str], Cursor]:
    fitting = [name for name in names if asked.fits(name)]
    page = fitting[: asked.limit]
    if len(fitting) > asked.limit:
        return page, cursor_of(page[-1])
    return page, cursor_of(names[-1]) if is_more else UNSET


async def _described(store: Store, names: list[str], who: Identity) -> list[Description]:
    """As many of these as one answer should have: cards are large."""
    described: list[Description] = []
    size = 0
    for start in range(0, len(names), DESCRIBE_AT_ONCE):
        some = await store.agents.describe(names[start : start + DESCRIBE_AT_ONCE], view_of(who))
        described += some
        size += sum(len((agent.registration or {}).get("card", "")) for agent in some)
        if size > MAX_ANSWER_BYTES:
            break
    return described


def _with_rates(agent: AgentShown, ranking: Ranking) -> AgentShown:
    """Adds the rates of the latest snapshot, if it ranks the agent."""
    busy = ranking.agents.get(agent.agent)
    if busy is not None:
        agent.accepted_per_s, agent.acked_per_s = busy.accepted_per_s, busy.acked_per_s
    return agent
