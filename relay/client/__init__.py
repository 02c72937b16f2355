"""The Python client: no message is lost on its way out, and none is handled twice."""

from relay.client.agent import Agent
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
from relay.client.frames import PresenceInfo, Side, SyncState
from relay.client.gaps import Gap
from relay.client.keys import Key, SealingKey
from relay.client.message import Message
from relay.client.outcomes import Cancelled, Dead, Delivered, End, Expired
from relay.client.questions import Event
from relay.client.security import Security
from relay.client.sent import Sent
from relay.client.states import Connecting, Ended, Live, ReplacedBy, State

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
