"""Pauses: stop and resume delivery. Senders notice nothing."""

from typing import Annotated

from aiohttp import web
from msgspec import UNSET, Meta

from relay.auth import Identity
from relay.core.instance.instance import Instance
from relay.http.app_keys import INSTANCE
from relay.http.auth import agent_in_path, identity, tenant_asked_for
from relay.http.body import RequestBody, read_body
from relay.http.operation import operation
from relay.http.query import TenantPage, read_query
from relay.http.responses import json_response
from relay.http.routes.agents import pause_shown
from relay.http.schemas.fields import doc
from relay.http.schemas.pauses import AgentPaused, PausedAgent, PausePage, TenantPaused
from relay.http.sse import whole_number
from relay.store.agents.pauses import Pause
from relay.store.agents.rates import LIST

routes = web.RouteTableDef()


class PauseWish(RequestBody):
    """The reason of a pause."""

    reason: Annotated[str, Meta(max_length=500), doc("Why, for those who wonder.", "its database is being moved")] = ""


@routes.put("/v1/agents/{agent}/pause")
@operation("admin", body=PauseWish, answers={200: AgentPaused}, price=LIST)
async def pause_agent(request: web.Request) -> web.Response:
    """Pause the delivery to an agent.

    Its mail waits; what is held stays held. One that is paused already stays as it is.
    """
    who = identity(request)
    agent, wish = agent_in_path(request, who), await read_body(request, PauseWish)
    return json_response(AgentPaused(agent, pause_shown(await _pause(request.app[INSTANCE], agent, who, wish.reason))))


@routes.delete("/v1/agents/{agent}/pause")
@operation("admin", answers={200: AgentPaused}, price=LIST)
async def resume_agent(request: web.Request) -> web.Response:
    """Resume the delivery to an agent.

    A pause of its tenant stays.
    """
    who = identity(request)
    agent = agent_in_path(request, who)
    await _resume(request.app[INSTANCE], agent, who)
    return json_response(AgentPaused(agent, None))


@routes.put("/v1/tenants/{tenant}/pause")
@operation("admin", body=PauseWish, answers={200: TenantPaused}, price=LIST)
async def pause_tenant(request: web.Request) -> web.Response:
    """Pause the delivery in a tenant.

    To all of its agents, also those that come later.
    """
    who = identity(request)
    tenant, wish = tenant_asked_for(request.match_info["tenant"], who), await read_body(request, PauseWish)
    return json_response(
        TenantPaused(tenant, pause_shown(await _pause(request.app[INSTANCE], tenant, who, wish.reason)))
    )


@routes.delete("/v1/tenants/{tenant}/pause")
@operation("admin", answers={200: TenantPaused}, price=LIST)
async def resume_tenant(request: web.Request) -> web.Response:
    """Resume the delivery in a tenant.

    Agents that are paused themselves stay so.
    """
    who = identity(request)
    tenant = tenant_asked_for(request.match_info["tenant"], who)
    await _resume(request.app[INSTANCE], tenant, who)
    return json_response(TenantPaused(tenant, None))


async def _pause(instance: Instance, name: str, who: Identity, reason: str) -> Pause:
    pause = await instance.store.pauses.pause(name, who.address, reason)
    instance.pauses.turn(name, True)  # here at once; the other instances are told
    return pause


async def _resume(instance: Instance, name: str, who: Identity) -> None:
    await instance.store.pauses.resume(name, who.address)
    instance.pauses.turn(name, False)


@routes.get("/v1/pauses")
@operation("inspect", query=TenantPage, answers={200: PausePage}, price=LIST)
async def listing(request: web.Request) -> web.Response:
    """List what is paused.

    The tenant, if it is, and its agents, shard by shard: a page may be longer than `limit` and goes on with `cursor`.
    """
    store, who = request.app[INSTANCE].store, identity(request)
    asked = read_query(request, TenantPage)
    tenant = tenant_asked_for(asked.tenant, who)
    shard = 0 if asked.cursor is None else whole_number(asked.cursor) or 0
    agents: dict[str, Pause] = {}
    while shard < store.keys.shards and len(agents) < asked.limit:
        agents |= await store.pauses.agents_of(tenant, shard)
        shard += 1
    whole = await store.pauses.of(tenant)
    paused = [
        PausedAgent(name, pause.by, pause.since_ms, pause.reason or UNSET) for name, pause in sorted(agents.items())
    ]
    cursor = str(shard) if shard < store.keys.shards else UNSET
    return json_response(PausePage(None if whole is None else pause_shown(whole), paused, cursor))
