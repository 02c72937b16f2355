"""Agents: raw WebSockets that send, receive, settle, go away and come back, and note everything in the books."""

import asyncio
import json
import time
from contextlib import suppress
from typing import Any

import aiohttp

from bench.torture.books import Delivery, Frame, Session, Settlement
from bench.torture.scene import Scene
from bench.torture.story import chance
from bench.torture.traffic import WINDOW, Deed, Draft, Member, batches, deed

OPEN_WITHIN_S = 4.0
PING_EVERY_S = 1.5
ANSWER_WITHIN_S = 8.0
TRY_AGAIN_S = 0.4
MOST_FORGOTTEN = 3  # of what one session holds: it would hold its whole window for ever
GIVE_UP_AFTER = 12  # refusals of a message that is not in doubt
NETWORK_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)


class Wire:
    """One session: frames in the order in which they come, and what its holder has."""

    def __init__(self, scene: Scene, member: Member, ws: aiohttp.ClientWebSocketResponse, instance: int) -> None:
        self.name = ""
        self.instance = instance
        self.heard_at = time.monotonic()
        self.is_open = True
        self.is_welcome = asyncio.Event()
        self.answers: dict[str, asyncio.Future[Frame]] = {}  # id -> what became of the sending under way
        self._scene = scene
        self._member = member
        self._ws = ws
        self._is_drained = False
        self._held: dict[str, Delivery] = {}
        self._asked: dict[str, Settlement] = {}  # entry -> what is being settled
        self._unconfirmed: dict[str, Delivery] = {}  # what it acked and expects no answer for, unless it is refused
        self._forgotten = 0
        self._cursor = ""  # of the last receipts, if they are not confirmed
        self._outgoing: asyncio.Queue[str] = asyncio.Queue()

    @property
    def port(self) -> int:
        return int(self._ws.get_extra_info("sockname", ("", 0))[1])

    # -- its life

    async def run(self) -> None:
        """Until the session ends, however it ends."""
        writing = asyncio.create_task(self._write())
        pinging = asyncio.create_task(self._ping())
        try:
            async for one in self._ws:
                self.heard_at = time.monotonic()
                if one.type is aiohttp.WSMsgType.TEXT:
                    self._handle(json.loads(one.data))
        except NETWORK_ERRORS:
            pass
        finally:
            self._end()
            writing.cancel()
            pinging.cancel()
            await asyncio.gather(writing, pinging, return_exceptions=True)
            with suppress(*NETWORK_ERRORS):
                await self._ws.close()

    def _end(self) -> None:
        self.is_open = False
        if self.name:
            self._scene.books.sessions[self.name].ended_at = time.monotonic()
        for answer in self.answers.values():
            if not answer.done():
                answer.set_result({})
        self.is_welcome.set()

    async def close(self) -> None:
        with suppress(*NETWORK_ERRORS):
            async with asyncio.timeout(2):
                await self._ws.close()

    def abort(self) -> None:
        """The client gives the connection up without a word."""
        response = self._ws._response
        if response.connection is not None and response.connection.transport is not None:
            response.connection.transport.abort()

    async def _write(self) -> None:
        while True:
            text = await self._outgoing.get()
            with suppress(*NETWORK_ERRORS):
                await self._ws.send_str(text)

    async def _ping(self) -> None:
        silent_s = chance(self._scene.seed, self._member.address, "silence").uniform(4, 12)
        while True:
            await asyncio.sleep(PING_EVERY_S)
            self.say("ping")
            if time.monotonic() - self.heard_at > silent_s:
                self.abort()

    def say(self, op: str, **fields: Any) -> None:
        self._outgoing.put_nowait(json.dumps({"op": op, **fields}))

    # -- what it hears

    def _handle(self, frame: Frame) -> None:
        match frame["op"]:
            case "welcome":
                self._welcome(frame["session"], frame["epoch"])
            case "epoch":
                self._scene.books.sessions[self.name].epochs.append((time.monotonic(), frame["epoch"]))
            case "deliver":
                self._deliveries(frame["messages"])
            case "drained":
                self._is_drained = True
            case "accepted":
                self._accepted(frame)
            case "refused":
                for refusal in frame["refusals"]:
                    self._refused(refusal)
            case "settled":
                for entry in frame["entries"]:
                    self._settled(entry, "settled")
            case "receipts":
                self._receipts(frame)
            case "error":
                self._scene.books.counts[f"error {frame['code']}"] += 1
                if frame["code"] in ("malformed", "unknown_op", "internal"):
                    self._scene.books.breach("clear answers", f"{self._member.address} heard {frame}")

    def _deliveries(self, messages: list[Frame]) -> None:
        if len(messages) > WINDOW:
            self._scene.books.breach(
                "the window", f"{self.name} got {len(messages)} messages at once, and may hold {WINDOW}"
            )
        for message in messages:
            self._got(message)

    def _welcome(self, name: str, epoch: str) -> None:
        self.name, now = name, time.monotonic()
        self._scene.books.sessions[name] = Session(
            self._member.address, name, self._member.role, now, epochs=[(now, epoch)]
        )
        self.is_welcome.set()

    def _accepted(self, frame: Frame) -> None:
        if frame["durability"] != self._scene.durability:
            self._scene.books.breach("durability", f"{self._member.address} heard {frame['durability']!r}")
        for id in frame["ids"]:
            self._answer(id, {"is_new": True})
        for id in frame["duplicate_ids"]:
            self._answer(id, {"is_new": False})

    def _answer(self, id: str, outcome: Frame) -> None:
        answer = self.answers.get(id)
        if answer is not None and not answer.done():
            answer.set_result(outcome)

    def _refused(self, refusal: Frame) -> None:
        if "entry" in refusal:
            self._settled(refusal["entry"], refusal["code"])
        else:
            self._answer(refusal["id"], refusal)

    def _receipts(self, frame: Frame) -> None:
        self._scene.books.received_receipts(self._member.address, self.name, frame["receipts"])
        random = chance(self._scene.seed, self._member.address, frame["cursor"])
        self._cursor = frame["cursor"]
        if self._scene.is_ending or random.random() < 0.9:
            self._confirm_receipts()

    def _confirm_receipts(self) -> None:
        if self._cursor:
            self.say("receipts_ack", cursor=self._cursor)
            self._cursor = ""

    # -- what it holds

    def _got(self, frame: Frame) -> None:
        books = self._scene.books
        delivery = books.delivered(self._member.address, self.name, frame, not self._is_drained)
        message = books.messages.get(delivery.key)
        self._held[delivery.entry] = delivery
        what = deed(self._scene.seed, delivery, len(message.deliveries) if message else 1, self._scene.is_ending)
        if not what.how and self._forgotten < MOST_FORGOTTEN:
            self._forgotten += 1
            return
        if what.after_s:
            if what.touches:
                self._settle(delivery, Deed("touch", fields=(("extend_s", 10),)))
            asyncio.get_running_loop().call_later(what.after_s, self._settle, delivery, what)
        else:
            self._settle(delivery, what if what.how else Deed("reply" if frame["request"] else "ack"))

    def _settle(self, delivery: Delivery, what: Deed) -> None:
        entry = delivery.entry
        if not self.is_open or self._held.get(entry) is not delivery:
            return
        if entry in self._asked:
            asyncio.get_running_loop().call_later(TRY_AGAIN_S, self._settle, delivery, what)
            return
        asked = self._scene.books.asked(delivery, what.how, dict(what.fields))
        fields: Frame = dict(what.fields)
        if what.how == "reply":
            self.say("reply", entry=entry, payload={"re": list(delivery.key)}, confirm=True)
        else:
            self.say(what.how, entries=[entry], **fields, **({"confirm": True} if what.confirm else {}))
        if what.confirm:
            self._asked[entry] = asked
        else:
            self._unconfirmed[entry] = self._held.pop(entry)

    def _settled(self, entry: str, answer: str) -> None:
        asked = self._asked.pop(entry, None)
        if asked is None:
            self._not_done(entry, answer)
            return
        asked.answer = answer
        self._scene.books.counts[f"told {answer}"] += 1
        delivery = self._held.get(entry)
        if delivery is None or delivery is not asked.last:
            return
        if answer == "store_unavailable" or (answer == "settled" and asked.how == "touch"):
            if answer == "store_unavailable":
                again = Deed(asked.how, fields=tuple(asked.fields.items()))
                asyncio.get_running_loop().call_later(TRY_AGAIN_S, self._settle, delivery, again)
        else:
            del self._held[entry]

    def _not_done(self, entry: str, answer: str) -> None:
        delivery = self._unconfirmed.pop(entry, None)
        if delivery is not None and answer == "store_unavailable":
            self._held.setdefault(entry, delivery)
            asyncio.get_running_loop().call_later(TRY_AGAIN_S, self._settle, delivery, Deed("ack"))

    def settle_all(self) -> None:
        """The end is near: what it holds, also what it forgot, is done now."""
        self._confirm_receipts()
        for delivery in list(self._held.values()):
            self._settle(delivery, Deed("reply" if delivery.fields["request"] else "ack"))


class Seat:
    """One place at which an agent listens: whenever its session ends, it opens another."""

    def __init__(self, scene: Scene, member: Member, number: int) -> None:
        self.wire: Wire | None = None
        self.is_present = asyncio.Event()
        self.is_present.set()
        self._left_at = 0.0
        self._scene = scene
        self._member = member
        self._random = chance(scene.seed, member.address, number, "doors")
        self._opened = asyncio.Event()
        self._again = asyncio.Event()  # open a session more, beside the one that is there
        self._running: dict[asyncio.Task[None], Wire] = {}  # of a shared agent, also those opened beside others

    async def live(self) -> None:
        while True:
            await self.is_present.wait()
            task = await self._open()
            if task is not None:
                again = asyncio.create_task(self._again.wait())
                await asyncio.wait({task, again}, return_when=asyncio.FIRST_COMPLETED)
                again.cancel()
                self._again.clear()
            await asyncio.sleep(self._random.uniform(0.02, TRY_AGAIN_S))

    async def _open(self) -> asyncio.Task[None] | None:
        instance = self._random.randrange(len(self._scene.doors))
        try:
            async with asyncio.timeout(OPEN_WITHIN_S):
                url = f"{self._scene.doors[instance].url}/v1/ws"
                ws = await self._scene.http.ws_connect(url, max_msg_size=0)
        except NETWORK_ERRORS:
            return None
        wire = Wire(self._scene, self._member, ws, instance)
        task = asyncio.create_task(wire.run())
        self._running[task] = wire
        task.add_done_callback(self._running.pop)
        mode = "shared" if self._member.role == "shared" else "exclusive"
        own = {"ack_timeout_s": 3} if mode == "shared" else {}
        wire.say("auth", token=self._scene.token(self._member.address), window=WINDOW, mode=mode, **own)
        with suppress(TimeoutError):
            await asyncio.wait_for(wire.is_welcome.wait(), OPEN_WITHIN_S)
        if not wire.name:
            wire.abort()
            await task
            return None
        self.wire = wire
        self._opened.set()
        return task

    async def opened(self) -> Wire:
        """Its session, as soon as there is one."""
        while self.wire is None or not self.wire.is_open or not self.is_present.is_set():
            self._opened.clear()
            await self._opened.wait()
        return self.wire

    def open_another(self) -> None:
        self._again.set()

    async def leave(self) -> None:
        self._left_at = time.monotonic()
        self.is_present.clear()
        await asyncio.gather(*(wire.close() for wire in self._running.values()))

    async def come_back(self) -> None:
        self.is_present.set()
        self._scene.books.absences[self._member.address].append((self._left_at, time.monotonic()))

    async def close(self) -> None:
        self.is_present.clear()
        await asyncio.gather(*(wire.close() for wire in self._running.values()))
        if self._running:
            await asyncio.wait(self._running, timeout=5)


class Sender:
    """Sends what a member has to send, through its seat: each message until it has a clear answer."""

    def __init__(self, scene: Scene, member: Member, seat: Seat) -> None:
        self._scene = scene
        self._member = member
        self._seat = seat

    async def run(self) -> None:
        for pause_s, drafts in batches(self._scene.seed, self._member):
            await asyncio.sleep(pause_s)
            if self._scene.is_ending:
                return
            await self._send(drafts)
            for draft in drafts:
                self._scene.after(draft)

    async def _send(self, drafts: list[Draft]) -> None:
        waiting, refusals = list(drafts), 0
        while waiting:
            wire = await self._seat.opened()
            outcomes = await self._ask(wire, waiting)
            refusals += 1
            waiting = [
                draft
                for draft, outcome in zip(waiting, outcomes, strict=True)
                if not self._scene.note_outcome(draft.key, outcome, gives_up=refusals >= GIVE_UP_AFTER)
            ]
            if waiting:
                await asyncio.sleep(TRY_AGAIN_S)

    async def _ask(self, wire: Wire, drafts: list[Draft]) -> list[Frame]:
        """One answer for each; an empty one if none came."""
        loop = asyncio.get_running_loop()
        answers = [wire.answers.setdefault(draft.key.id, loop.create_future()) for draft in drafts]
        for draft in drafts:
            self._scene.books.sent(draft.key, draft.fields, is_http=False)
        wire.say("send", messages=[{"id": draft.key.id, "to": draft.key.to, **draft.fields} for draft in drafts])
        await asyncio.wait(answers, timeout=ANSWER_WITHIN_S)
        for draft in drafts:
            wire.answers.pop(draft.key.id, None)
        return [answer.result() if answer.done() else {} for answer in answers]
