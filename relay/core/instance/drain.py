"""Drain: a stopping instance loses nothing, and tells its clients when to come back."""

import logging
import random

from relay.core.instance.heartbeat import COMEBACK_MS
from relay.core.instance.notifier import Notifier
from relay.core.instance.sockets import Sockets
from relay.core.presence.sessions import Sessions
from relay.core.session.session import Session

log = logging.getLogger(__name__)

FINISH_S = 5.0  # how long a session may take to settle what it holds


class Drain:
    def __init__(self, sessions: Sessions, sockets: Sockets, notifier: Notifier, at_most_s: float) -> None:
        self.has_begun = False
        self._sessions = sessions
        self._sockets = sockets
        self._notifier = notifier
        self._at_most_s = at_most_s

    async def run(self) -> None:
        """Clients settle what they can, and are let go. Calls that wait are answered."""
        self.has_begun = True
        self._notifier.notify_all()
        for session in self._sessions:
            session.pump.is_closing = True
        for socket in self._sockets:
            socket.close("draining", random.randrange(COMEBACK_MS))
        await self._sockets.wait_until_closed(self._at_most_s)
        log.info("drained", extra={"sessions_left": len(self._sessions)})

    def may_close(self, session: Session, asked_s: float) -> bool:
        """Whether a session has finished, or has used its time since it was asked to close."""
        patience_s = min(FINISH_S, self._at_most_s) if self.has_begun else 0.0
        return session.is_idle() or asked_s >= patience_s
