"""Anomalies, as operations answer with them."""

from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType

from relay.http.schemas import fields
from relay.http.schemas.fields import AgentAddress, Entry, MessageId, doc, one_of
from relay.store.watching.anomalies import KINDS, SEVERITIES


class AnomalyShown(Struct, kw_only=True):
    """An anomaly, listed once however often it was seen."""

    id: Annotated[str, doc("What it is and about whom: the same id is the same anomaly.", "mailbox_full acme/bob")]
    kind: Annotated[str, one_of(*KINDS), doc("What looks wrong.", "mailbox_full")]
    severity: Annotated[str, one_of(*SEVERITIES), doc("How bad it is.", "critical")]
    text: Annotated[str, doc("What looks wrong, for people.", "the mailbox of acme/bob is full")]
    evidence: Annotated[dict[str, Any], doc("The numbers that it was judged by.", {"depth": 1_000, "limit": 1_000})]
    first_ms: Annotated[int, doc("When it was first seen, in milliseconds since 1970.", 1_800_000_000_000)]
    last_ms: Annotated[int, doc("When it was last seen, in milliseconds since 1970.", 1_800_000_060_000)]
    count: Annotated[int, doc("In how many rounds it was seen.", 7)]
    active: Annotated[bool, doc("Whether it was seen lately.", True)]
    agent: AgentAddress | UnsetType = UNSET
    session: fields.Holder | UnsetType = UNSET
    message: MessageId | UnsetType = UNSET
    entry: Entry | UnsetType = UNSET
    instance: fields.Instance | UnsetType = UNSET


class AnomalyPage(Struct):
    """A page of anomalies, latest first."""

    anomalies: Annotated[list[AnomalyShown], doc("What looks wrong.")]
    cursor: Annotated[str, doc("Where the next page begins, if there is one.", "100")] | UnsetType = UNSET
