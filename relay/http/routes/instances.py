"""Instances and workers: what runs on this store."""

from aiohttp import web
from msgspec import UNSET

from relay.errors import Forbidden
from relay.http.app_keys import INSTANCE
from relay.http.auth import identity
from relay.http.operation import operation
from relay.http.responses import json_response
from relay.http.schemas.instances import InstanceShown, Processes, WorkerShown
from relay.store.agents.rates import LIST
from relay.store.store import Store
from relay.store.worker_leases import Round

routes = web.RouteTableDef()


@routes.get("/v1/instances")
@operation("metrics", "operator", answers={200: Processes}, price=LIST)
async def instances(request: web.Request) -> web.Response:
    """List instances and workers.

    They are of the whole store: for an operator, or with the scope metrics.
    """
    if not identity(request).scopes & {"metrics", "operator"}:
        raise Forbidden("the token lacks the scope metrics or operator")
    store = request.app[INSTANCE].store
    return json_response(Processes(await _instances(store), await _workers(store)))


async def _instances(store: Store) -> list[InstanceShown]:
    """All shards are told the same; one is asked."""
    now_ms = store.clock.now_ms()
    return [
        InstanceShown(instance=name, alive=until_ms > now_ms, until_ms=until_ms, this=name == store.instance)
        for name, until_ms in sorted((await store.presence.instances(0)).items())
    ]


async def _workers(store: Store) -> list[WorkerShown]:
    rounds, failing = await store.workers.rounds(), await store.workers.failing()
    now_ms = store.clock.now_ms()
    return [_shown(name, rounds.get(name), failing.get(name), now_ms) for name in sorted({*rounds, *failing})]


def _shown(name: str, last: Round | None, error: str | None, now_ms: int) -> WorkerShown:
    shown = WorkerShown(worker=name, last_round_ms=None, late=last is None, error=error or UNSET)
    if last is not None:
        shown.last_round_ms, shown.holder, shown.done = last.at_ms, last.process, last.done
        shown.took_ms, shown.every_s = last.took_ms, last.every_s
        shown.late = last.is_late(now_ms)
    return shown
