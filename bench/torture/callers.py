"""Callers and pullers: who uses HTTP alone."""

import asyncio
from typing import Any

from bench.torture.books import Delivery, Frame
from bench.torture.scene import TRY_AGAIN_S, Scene
from bench.torture.story import chance
from bench.torture.traffic import Deed, Draft, Member, batches, deed

LEASE_S = 3
GIVE_UP_AFTER = 12
PROBE_EVERY_S = 1.0
ANSWERS = {409: "lock_lost", 404: "not_found", 200: "settled"}


class Caller:
    """Sends batches over HTTP, each until it has a clear answer."""

    def __init__(self, scene: Scene, member: Member) -> None:
        self._scene = scene
        self._member = member

    async def run(self) -> None:
        for pause_s, drafts in batches(self._scene.seed, self._member):
            await asyncio.sleep(pause_s)
            if self._scene.is_ending:
                return
            for to in sorted({draft.key.to for draft in drafts}):
                await self._send(to, [draft for draft in drafts if draft.key.to == to])
            for draft in drafts:
                self._scene.after(draft)

    async def _send(self, to: str, waiting: list[Draft]) -> None:
        tries = 0
        while waiting:
            for draft in waiting:
                self._scene.books.sent(draft.key, draft.fields, is_http=True)
            body = {"messages": [{"id": draft.key.id, **draft.fields} for draft in waiting]}
            name, tries = to.partition("/")[2], tries + 1
            status, answer = await self._scene.call(self._member.address, "POST", f"/v1/agents/{name}/messages", body)
            outcomes = _outcomes(answer) if status == 202 else {}
            waiting = [
                draft
                for draft in waiting
                if not self._scene.note_outcome(draft.key, outcomes.get(draft.key.id, {}), tries >= GIVE_UP_AFTER)
            ]
            if waiting:
                await asyncio.sleep(TRY_AGAIN_S)


def _outcomes(answer: Frame) -> dict[str, Frame]:
    accepted = {one["id"]: {"is_new": not one["duplicate"]} for one in answer["accepted"]}
    return accepted | {one["id"]: one for one in answer["refused"]}


class Puller:
    """Leases, works for a while, sometimes for too long, and settles with its lock token."""

    def __init__(self, scene: Scene, member: Member, number: int) -> None:
        self._scene = scene
        self._member = member
        self._consumer = f"p{number}"
        self._random = chance(scene.seed, member.address, number, "leases")

    async def run(self) -> None:
        while True:
            body = {"max": self._random.choice((1, 3, 10)), "wait_s": 1, "ack_timeout_s": LEASE_S}
            status, answer = await self._call("POST", "lease", body | {"consumer": self._consumer})
            if status != 200:
                await asyncio.sleep(TRY_AGAIN_S)
                continue
            await asyncio.gather(*(self._work(frame) for frame in answer["messages"]))

    async def _work(self, frame: Frame) -> None:
        books, token = self._scene.books, frame["lock_token"]
        delivery = books.delivered(self._member.address, token.split(".", 3)[3], frame)
        message = books.messages.get(delivery.key)
        what = deed(self._scene.seed, delivery, len(message.deliveries) if message else 1, self._scene.is_ending)
        await asyncio.sleep(what.after_s * 1.5)
        if what.how:
            await self._settle(delivery, token, what)

    async def _settle(self, delivery: Delivery, token: str, what: Deed) -> None:
        """Until there is a clear answer: a 404 after a lost one means that it was done."""
        fields: dict[str, Any] = dict(what.fields)
        body = {"lock_token": token, **fields} | (
            {"payload": {"re": list(delivery.key)}} if what.how == "reply" else {}
        )
        for _ in range(5):
            asked = self._scene.books.asked(delivery, what.how, fields)
            status, _ = await self._call("POST", f"entries/{delivery.entry}/{what.how}", body)
            asked.answer = ANSWERS.get(status, "")
            if asked.answer:
                self._scene.books.counts[f"told {asked.answer}"] += 1
                return
            await asyncio.sleep(TRY_AGAIN_S)

    async def _call(self, method: str, what: str, body: Frame) -> tuple[int, Frame]:
        path = f"/v1/agents/{self._member.name}/{what}"
        return await self._scene.call(self._member.address, method, path, body)


class Prober:
    """Tries, again and again, to reach what belongs to another tenant."""

    def __init__(self, scene: Scene, members: list[Member]) -> None:
        self._scene = scene
        self._members = members
        self._random = chance(scene.seed, "probes")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            me, victim = self._random.choice(self._members), self._random.choice(self._members)
            if me.tenant != victim.tenant:
                await self._probe(me, victim)

    async def _probe(self, me: Member, victim: Member) -> None:
        foreign = f"{victim.tenant}~{victim.name}"
        for method, path, body in (
            ("GET", f"/v1/agents/{foreign}/messages", None),
            ("POST", f"/v1/agents/{foreign}/lease", {"max": 10}),
            ("POST", f"/v1/agents/{foreign}/messages", {"id": "probe", "payload": "probe"}),
        ):
            status, _ = await self._scene.call(
                me.address, method, path, body, scope="send receive inspect admin metrics"
            )
            self._scene.books.counts["probes"] += 1
            if 200 <= status < 300:
                self._scene.books.breach("tenants apart", f"{me.address}: {method} {path} was answered {status}")
