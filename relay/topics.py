"""Topics: what is published to those who are connected now, at most once and never stored."""

from typing import Protocol

import orjson

from relay.store.wakeups import Wakeups


class Listener(Protocol):
    tenant: str

    def send(self, frame: bytes) -> None: ...


class Topics:
    """Who on this instance follows which topic. A tenant is listened to while somebody here does."""

    def __init__(self) -> None:
        self._followers: dict[str, dict[str, set[Listener]]] = {}  # tenant -> topic -> who
        self._wakeups: Wakeups | None = None

    def attach(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups

    def subscribe(self, listener: Listener, topics: list[str]) -> None:
        followed = self._followers.setdefault(listener.tenant, {})
        for topic in topics:
            followed.setdefault(topic, set()).add(listener)
        if self._wakeups is not None:
            self._wakeups.follow(listener.tenant)

    def unsubscribe(self, listener: Listener, topics: list[str]) -> None:
        followed = self._followers.get(listener.tenant, {})
        for topic in topics:
            followers = followed.get(topic, set())
            followers.discard(listener)
            if not followers:
                followed.pop(topic, None)
        if not followed and self._followers.pop(listener.tenant, None) is not None and self._wakeups is not None:
            self._wakeups.unfollow(listener.tenant)

    def published(self, tenant: str, data: bytes) -> None:
        """Hands a publication to those who follow its topic here."""
        topic, _, frame = data.partition(b"\n")
        for listener in self._followers.get(tenant, {}).get(orjson.loads(topic), ()):
            listener.send(frame)


def publication(topic: str, sender: str, payload: bytes) -> bytes:
    """What travels over the channel: the topic, and the frame that subscribers get."""
    frame = {"op": "event", "topic": topic, "from": sender, "payload": orjson.Fragment(payload)}
    return orjson.dumps(topic) + b"\n" + orjson.dumps(frame)
