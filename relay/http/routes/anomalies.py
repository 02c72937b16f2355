"""Anomalies: what looks wrong."""

from typing import Annotated

from aiohttp import web
from msgspec import UNSET, Meta

from relay.auth import Identity
from relay.errors import Forbidden, Malformed
from relay.http.app_keys import INSTANCE
from relay.http.auth import identity, tenant_asked_for
from relay.http.did_you_mean import check_names
from relay.http.operation import operation
from relay.http.query import Page, read_query
from relay.http.responses import json_response
from relay.http.schemas.anomalies import AnomalyPage, AnomalyShown
from relay.http.schemas.fields import doc
from relay.http.sse import whole_number
from relay.protocol.address import address
from relay.store.agents.rates import LIST
from relay.store.watching.anomalies import KINDS, SEVERITIES, Anomaly
from relay.store.watching.snapshots import ALL_TENANTS

routes = web.RouteTableDef()


class AnomaliesQuery(Page):
    tenant: (
        Annotated[str, Meta(max_length=64), doc("Another tenant, or `*`: the store itself. For an operator.", "acme")]
        | None
    ) = None
    kind: Annotated[str, Meta(max_length=500), doc("Only these kinds, by commas.", "mailbox_full,stale")] = ""
    severity: Annotated[str, Meta(max_length=100), doc("Only these severities, by commas.", "warning,critical")] = ""
    agent: Annotated[str, Meta(max_length=129), doc("Only what is about this agent.", "bob")] | None = None
    active: Annotated[bool | None, doc("Only what was seen lately, or only what was not.", True)] = None


@routes.get("/v1/anomalies")
@operation("inspect", query=AnomaliesQuery, answers={200: AnomalyPage}, price=LIST)
async def anomalies(request: web.Request) -> web.Response:
    """List what looks wrong.

    What the observer has found in a tenant, the latest first; for an operator also of the store (`tenant=*`).
    """
    store, who = request.app[INSTANCE].store, identity(request)
    asked = read_query(request, AnomaliesQuery)
    tenant = _tenant(asked.tenant, who)
    kinds, severities = _words(asked.kind, KINDS, "kind"), _words(asked.severity, SEVERITIES, "severity")
    agent = None if asked.agent is None else address(asked.agent.replace("~", "/", 1), tenant)
    now_ms = store.clock.now_ms()
    found = [
        shown
        for anomaly in await store.anomalies.of(tenant)
        if anomaly.kind in kinds
        and anomaly.severity in severities
        and agent in (None, anomaly.agent)
        and asked.active in (None, (shown := _shown(anomaly, store.anomalies.is_active(anomaly, now_ms))).active)
    ]
    start = _start(asked.cursor)
    page = found[start : start + asked.limit]
    cursor = str(start + asked.limit) if start + asked.limit < len(found) else UNSET
    return json_response(AnomalyPage(page, cursor))


def _tenant(asked: str | None, who: Identity) -> str:
    if asked != ALL_TENANTS:
        return tenant_asked_for(asked, who)
    if not who.is_operator:
        raise Forbidden("the whole store is an operator's")
    return ALL_TENANTS


def _words(text: str, known: tuple[str, ...], what: str) -> frozenset[str]:
    """The named ones, or all. Raises Malformed."""
    words = frozenset(text.split(",")) if text else frozenset(known)
    check_names(sorted(words), known, f"{what} of anomaly")
    return words


def _start(cursor: str | None) -> int:
    start = 0 if cursor is None else whole_number(cursor)
    if start is None:
        raise Malformed("cursor: expected one that came with a page")
    return start


def _shown(anomaly: Anomaly, active: bool) -> AnomalyShown:
    return AnomalyShown(
        id=anomaly.id,
        kind=anomaly.kind,
        severity=anomaly.severity,
        text=anomaly.text,
        evidence=anomaly.evidence,
        first_ms=anomaly.first_ms,
        last_ms=anomaly.last_ms,
        count=anomaly.count,
        active=active,
        agent=anomaly.agent or UNSET,
        session=anomaly.session or UNSET,
        message=anomaly.message or UNSET,
        entry=anomaly.entry or UNSET,
        instance=anomaly.instance or UNSET,
    )
