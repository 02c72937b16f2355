"""Stats: totals and activity of a tenant."""

from typing import Annotated

from aiohttp import web
from msgspec import UNSET, Meta, convert

from relay.auth import Identity
from relay.core.instance.instance import Instance
from relay.errors import Forbidden
from relay.http.app_keys import INSTANCE
from relay.http.auth import identity, tenant_asked_for
from relay.http.operation import operation
from relay.http.query import Query, read_query
from relay.http.responses import json_response
from relay.http.routes.agents import pause_shown
from relay.http.schemas.fields import doc
from relay.http.schemas.stats import BusyAgentShown, Counters, ShardShown, SnapshotShown, Stats
from relay.store.agents.rates import LIST
from relay.store.agents.roster import Sums
from relay.store.store import Store
from relay.store.watching.snapshots import ALL_TENANTS, Ranking

routes = web.RouteTableDef()

MOST_BUSIEST = 20


class StatsQuery(Query):
    tenant: (
        Annotated[
            str, Meta(max_length=64), doc("Another tenant than the token's, or `*`: all. For an operator.", "acme")
        ]
        | None
    ) = None
    history_s: Annotated[int, Meta(ge=0, le=7 * 86_400), doc("How many seconds of the past are told.", 600)] = 600


def counters(instance: Instance) -> Counters:
    """The counters of this instance."""
    metrics = instance.metrics
    return Counters(
        instance=instance.store.instance,
        sessions=metrics.sessions,
        accepted=metrics.accepted,
        taken=metrics.taken,
        acked=metrics.settled["ack"] + metrics.settled["reply"],
        refused=metrics.refused.total(),
        store_messages=sum(messages for messages, _ in metrics.depth.values()),
        events_cut=metrics.events_cut or UNSET,
    )


@routes.get("/v1/stats")
@operation("inspect", "metrics", query=StatsQuery, answers={200: Stats}, price=LIST)
async def stats(request: web.Request) -> web.Response:
    """Sum up a tenant.

    What it has and what it does, now and before; for an operator, or with the scope metrics, also what this instance
    counts.
    """
    instance, who = request.app[INSTANCE], identity(request)
    asked = read_query(request, StatsQuery)
    answer = await (_of_all(instance, who) if asked.tenant == ALL_TENANTS else _of_tenant(instance, asked.tenant, who))
    since_ms = answer.at_ms - asked.history_s * 1_000
    history = await instance.store.snapshots.history(answer.tenant, since_ms) if asked.history_s else []
    answer.history = convert(history, list[SnapshotShown], from_attributes=True)
    if who.scopes & {"operator", "metrics"}:
        answer.instance = counters(instance)
    return json_response(answer)


async def _of_tenant(instance: Instance, asked: str | None, who: Identity) -> Stats:
    tenant, store = tenant_asked_for(asked, who), instance.store
    sums = await store.roster.sums(tenant)
    oldest_ms = await store.roster.oldest_ms(tenant) if sums.messages else None
    answer = _told(store, tenant, sums, oldest_ms, await store.snapshots.ranking(tenant))
    pause = await store.pauses.of(tenant)
    answer.paused = UNSET if pause is None else pause_shown(pause)
    return answer


async def _of_all(instance: Instance, who: Identity) -> Stats:
    """All tenants together, as of the latest snapshot."""
    if not who.is_operator:
        raise Forbidden("all tenants are an operator's")
    store = instance.store
    ranking = await store.snapshots.ranking(ALL_TENANTS)
    latest = (await store.snapshots.history(ALL_TENANTS, ranking.at_ms))[-1:]
    oldest_ms = None
    sums = Sums(await store.roster.size(), 0, 0, 0, 0)
    for snapshot in latest:
        sums = Sums(sums.agents, snapshot.messages, snapshot.bytes, snapshot.dead, snapshot.online)
        oldest_ms = None if snapshot.oldest_age_s is None else snapshot.at_ms - round(snapshot.oldest_age_s * 1_000)
    answer = _told(store, ALL_TENANTS, sums, oldest_ms, ranking)
    answer.shards = convert(ranking.shards, list[ShardShown], from_attributes=True)
    return answer


def _told(store: Store, tenant: str, sums: Sums, oldest_ms: int | None, ranking: Ranking) -> Stats:
    busiest = [ranking.agents[name] for name in ranking.by.get("rate", ())[:MOST_BUSIEST]]
    return Stats(
        tenant=tenant,
        at_ms=store.clock.now_ms(),
        agents=sums.agents,
        online=sums.online,
        messages=sums.messages,
        bytes=sums.bytes,
        dead=sums.dead,
        oldest_ms=oldest_ms,
        history=[],
        busiest=convert(busiest, list[BusyAgentShown], from_attributes=True),
    )
