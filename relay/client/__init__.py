"""The Python client: no message is lost on its way out, and none is handled twice."""

from relay.client.agent.agent import Agent
from relay.client.connection.frames import PresenceInfo, Side, SyncState
from relay.client.connection.questions import Event
from relay.client.connection.states import Connecting, Ended, Live, ReplacedBy, State
from relay.client.errors import (
    CannotOpen,
    ClientError,
    Closed,
    Died,
    KeyChanged,
    NotAllowed,
    NotAnswered,
    OutboxFailed,
    OutboxFull,
    QueueFull,
    Refused,
    Reject,
    Replaced,
    RequestExpired,
    Retry,
    Unanswered,
    Unauthorized,
)
from relay.client.inbox.gaps import Gap
from relay.client.inbox.message import Message
from relay.client.keys.keys import Key, SealingKey
from relay.client.keys.security import Security
from relay.client.outbox.outcomes import Cancelled, Dead, Delivered, End, Expired
from relay.client.outbox.sent import Sent

__all__ = [
    "Agent",
    "Cancelled",
    "CannotOpen",
    "ClientError",
    "Closed",
    "Connecting",
    "Dead",
    "Delivered",
    "Died",
    "End",
    "Ended",
    "Event",
    "Expired",
    "Gap",
    "Key",
    "KeyChanged",
    "Live",
    "Message",
    "NotAllowed",
    "NotAnswered",
    "OutboxFailed",
    "OutboxFull",
    "PresenceInfo",
    "QueueFull",
    "Refused",
    "Reject",
    "Replaced",
    "ReplacedBy",
    "RequestExpired",
    "Retry",
    "SealingKey",
    "Security",
    "Sent",
    "Side",
    "State",
    "SyncState",
    "Unanswered",
    "Unauthorized",
]
