"""Ends: logs each message that ended other than by ack."""

import logging
from collections import Counter

from relay.store.record.events import parse

log = logging.getLogger(__name__)

LEVELS = {"dead": logging.WARNING, "expired": logging.INFO, "cancelled": logging.INFO}
MOST_LINES = 200  # of one round: of more only the number is told


class EndsLog:
    """One round over the event logs."""

    def __init__(self) -> None:
        self._lines = 0
        self._left_out: Counter[str] = Counter()

    def note(self, shard: int, columns: list[str]) -> None:
        """One event, as the log of a shard has it. What is none of these ends costs a comparison."""
        kind = columns[0]
        if kind not in LEVELS:
            return
        if self._lines == MOST_LINES:
            self._left_out[kind] += 1
            return
        self._lines += 1
        self._tell(kind, shard, columns)

    def _tell(self, kind: str, shard: int, columns: list[str]) -> None:
        fields = parse("", shard, columns).fields
        names = {
            "agent": f"{fields['tenant']}/{fields['to']}",
            "sender": f"{fields['tenant']}/{fields['from']}",
            "id": fields["id"],
            "entry": fields["entry"],
            "attempt": fields["attempt"],
        }
        log.log(LEVELS[kind], kind, extra=names | ({"reason": fields["reason"]} if fields["reason"] else {}))

    def close(self) -> None:
        for kind, count in self._left_out.items():
            log.log(LEVELS[kind], kind, extra={"left_out": count})
