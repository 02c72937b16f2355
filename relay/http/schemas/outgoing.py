"""What a send takes: the message of the protocol, as HTTP has it."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from relay.http.schemas.fields import doc
from relay.protocol.message import Message
from relay.protocol.unpacking import MAX_MESSAGES_PER_FRAME

MANY = Meta(min_length=1, max_length=MAX_MESSAGES_PER_FRAME)
_DOCS = {
    "id": doc("Names the message: the same id again is the same message. Left out, the relay makes one up.", "m-1"),
    "payload": doc("Any JSON value; the relay does not look at it.", {"sum": [2, 2]}),
    "type": doc("What kind of message it is; workers may lease by type.", "job"),
    "thread": doc("The conversation that the message belongs to.", "order-4711"),
    "reply_to": doc("The id of the message that this one answers.", "m-0"),
    "priority": doc("0 to 9; a higher one is delivered earlier.", 0),
    "ttl_s": doc("How long the message is of use, in seconds; null: as long as the relay keeps messages.", 3_600),
    "delay_s": doc("How long to wait before the first delivery, in seconds.", 0),
    "max_attempts": doc("After how many failed attempts it is dead; 0: no limit.", 5),
    "ack_timeout_s": doc("How long a holder may keep it unconfirmed, in seconds; null: the holder's choice.", 30),
    "receipt": doc("Whether the sender gets a receipt for delivery or death; `all`: also for expiry.", False),
    "request": doc("Whether the sender wants a reply; `GET /v1/tasks/{id}` has it.", False),
    "signature": doc("The sender's signature, which the relay carries as it is.", "c2lnbmVk"),
    "headers": doc("Names and values for the recipient.", {"traceparent": "00-4bf9-00f0-01"}),
}


def _outgoing() -> type[Struct]:
    """M of a send as HTTP takes it: the recipient is in the path, the id may be the relay's, a receipt is asked for."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(Message):
        if field.name == "id":
            fields.append(("id", Annotated[field.type, _DOCS["id"]] | UnsetType, UNSET))
        elif field.name == "receipt":
            fields.append(("receipt", Annotated[field.type, _DOCS["receipt"]], False))
        elif field.name != "to":
            default = () if field.required else (field.default,)
            fields.append((field.name, Annotated[field.type, _DOCS[field.name]], *default))
    return msgspec.defstruct("Outgoing", fields, kw_only=True, namespace={"__doc__": "A message to send."})


Outgoing = _outgoing()
Batch = msgspec.defstruct(
    "Batch",
    [("messages", Annotated[list[Outgoing], MANY, doc("The messages, each with an outcome of its own.")])],  # type: ignore[valid-type]
    namespace={"__doc__": "Many messages to one recipient."},
)
