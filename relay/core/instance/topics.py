"""Topics: publications to connected subscribers, at most once and never stored."""

from collections.abc import Callable

import orjson

from relay.core.session.agent_link import AgentLink


class Topics:
    """The subscribers of each topic on this instance. It listens to a tenant while it has a subscriber there."""

    def __init__(self) -> None:
        self._followers: dict[str, dict[str, set[AgentLink]]] = {}  # tenant -> topic -> who
        self._follow: Callable[[str], None] = lambda _: None
        self._unfollow: Callable[[str], None] = lambda _: None

    def attach(self, follow: Callable[[str], None], unfollow: Callable[[str], None]) -> None:
        """How this instance begins and ends to listen to a tenant."""
        self._follow, self._unfollow = follow, unfollow

    def subscribe(self, follower: AgentLink, topics: list[str]) -> None:
        followed = self._followers.setdefault(follower.tenant, {})
        for topic in topics:
            followed.setdefault(topic, set()).add(follower)
        self._follow(follower.tenant)

    def unsubscribe(self, follower: AgentLink, topics: list[str]) -> None:
        followed = self._followers.get(follower.tenant, {})
        for topic in topics:
            followers = followed.get(topic, set())
            followers.discard(follower)
            if not followers:
                followed.pop(topic, None)
        if not followed and self._followers.pop(follower.tenant, None) is not None:
            self._unfollow(follower.tenant)

    def published(self, tenant: str, data: bytes) -> None:
        """Hands a publication to those who follow its topic here."""
        topic, _, frame = data.partition(b"\n")
        for follower in self._followers.get(tenant, {}).get(_named(topic), ()):
            follower.offer(frame)


def _named(topic: bytes) -> str:
    """A topic as it was published. What anybody else has published there is on none."""
    try:
        return str(orjson.loads(topic))
    except ValueError:
        return ""


def publication(topic: str, sender: str, payload: bytes) -> bytes:
    """The published bytes: the topic, and the frame for subscribers."""
    frame = {"op": "event", "topic": topic, "from": sender, "payload": orjson.Fragment(payload)}
    return orjson.dumps(topic) + b"\n" + orjson.dumps(frame)
