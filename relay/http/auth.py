"""Authentication and authorization of HTTP calls."""

from aiohttp import web

from relay.auth import AGENT_SCOPES, Identity
from relay.core.intake import pay
from relay.errors import Forbidden, Malformed, Unauthorized
from relay.http.app_keys import INSTANCE, TOKENS
from relay.http.did_you_mean import check_names
from relay.http.operation import Handler, operation_of
from relay.protocol.address import address, is_agent, tenant_of

WHO = web.RequestKey("who", Identity)  # whose a request is, once that is known


@web.middleware
async def charge(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Charges the call to the caller's rate."""
    described = operation_of(request.match_info.handler)
    if described is not None and described.price:
        await pay(request.app[INSTANCE].store, identity(request).address, described.price)
    return await handler(request)


def identity(request: web.Request, *scopes: str) -> Identity:
    """The caller, who needs one of these scopes, by default those of the operation. Raises Unauthorized, Forbidden."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized("a token is needed: Authorization: Bearer …")
    who: Identity = request.get(WHO) or request.app[TOKENS].verify(token.strip())
    request[WHO] = who
    described = operation_of(request.match_info.handler)
    if described is not None:
        check_names(request.query, described.query.__struct_encode_fields__, "query parameter")
    needed = scopes or (described.scopes if described else None) or ()
    if needed and not who.scopes & {*needed, "admin"}:
        raise Forbidden(f"the token lacks the scope {' or '.join(needed)}")
    instance = request.app[INSTANCE]
    if who.scopes & AGENT_SCOPES and not instance.settings.is_open(who.tenant):
        instance.store.agents.appear(who.address)  # in a closed tenant an agent comes to be by its token
    return who


def agent_in_path(request: web.Request, who: Identity) -> str:
    """The agent that the path names: bare in the token's tenant, or tenant~agent for an operator. Raises Forbidden."""
    name = request.match_info["agent"]
    tenant, tilde, agent = name.partition("~")
    if not tilde:
        tenant, agent = who.tenant, name
    if not is_agent(agent) or not is_agent(tenant):
        raise Malformed("agent: expected 1–64 of a-z A-Z 0-9 . _ - in the path")
    if tenant != who.tenant and not who.is_operator:
        raise Forbidden("agents of another tenant")
    return f"{tenant}/{agent}"


def own_agent(request: web.Request, who: Identity) -> str:
    """The agent in the path, which must be the token's own unless it is an admin's. Raises Forbidden."""
    agent = agent_in_path(request, who)
    if agent != who.address and not who.is_admin:
        raise Forbidden("the token is another agent's")
    return agent


def agent_to_look_at(request: web.Request, who: Identity) -> str:
    """The agent in the path: any of the tenant with the scope inspect, else the token's own. Raises Forbidden."""
    return agent_in_path(request, who) if "inspect" in who.scopes else own_agent(request, who)


def sender_asked_for(named: str | None, who: Identity, tenant: str | None = None) -> str:
    """On whose behalf a sender's question is asked: its own, or ?from= by an admin. Raises Forbidden."""
    if named is None:
        return who.address
    sender = address(named.replace("~", "/", 1), tenant or who.tenant)
    if sender != who.address and not who.administers(tenant_of(sender)):
        raise Forbidden("only an admin may ask for another sender")
    return sender


def sender_to_look_for(named: str | None, who: Identity, tenant: str) -> str:
    """Whose message is looked for: one's own, or ?from= by an admin or with the scope inspect. Raises Forbidden."""
    if named is None or not may_name_senders(who):
        return sender_asked_for(named, who, tenant)
    sender = address(named.replace("~", "/", 1), tenant)
    if tenant_of(sender) != tenant:
        raise Forbidden("another tenant's")
    return sender


def check_may_see_payloads(who: Identity, owner: str, scope: str) -> None:
    """One's own with this scope; those of others with the scope inspect, also for an admin. Raises Forbidden."""
    if "inspect" not in who.scopes and not (owner == who.address and scope in who.scopes):
        raise Forbidden("payloads need the scope inspect")


def may_name_senders(who: Identity) -> bool:
    """Whether it may look at messages of others in its tenant."""
    return bool(who.scopes & {"inspect", "admin"})


def tenant_asked_for(tenant: str | None, who: Identity) -> str:
    """The token's tenant, or ?tenant= by an operator. Raises Forbidden."""
    if tenant is None or tenant == who.tenant:
        return who.tenant
    if not who.is_operator:
        raise Forbidden("another tenant's")
    if not is_agent(tenant):
        raise Malformed("tenant: expected 1–64 of a-z A-Z 0-9 . _ -")
    return tenant
