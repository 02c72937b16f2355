"""One command on its way to a server."""

import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

Outcome = Any  # the reply, or the exception in its place


class Command:
    """`done` gets the reply, or StoreUnavailable, once."""

    __slots__ = (
        *("done", "may_repeat", "needs_replicas", "packet", "re_encode", "shard"),
        *("asking", "deadline", "is_astray", "moves", "slot"),
    )

    def __init__(
        self,
        packet: bytes,
        done: Callable[[Outcome], None],
        may_repeat: bool = True,
        re_encode: Callable[[], bytes] | None = None,
        needs_replicas: bool = False,
        shard: int = -1,
    ) -> None:
        self.packet = packet
        self.re_encode = re_encode  # makes the packet again: a later time may mean other keys
        self.done = done
        self.may_repeat = may_repeat  # whether sending it twice is the same as once
        self.needs_replicas = needs_replicas  # its answer is a promise, given when the replicas have it too
        self.shard = shard  # -1: not known
        # On a Cluster:
        self.slot = -1  # where its keys are; -1: it has none
        self.asking = False  # whether its slot is just moving to the master that it goes to
        self.is_astray = False  # whether it is not, or may not be, with the master of its slot
        self.moves = 0  # how often it was sent on because its slot has moved
        self.deadline = 0.0  # when one that is astray is given up

    def encode_again(self) -> None:
        """It may have been carried out, and is sent again."""
        if self.re_encode is not None:
            self.packet = self.re_encode()

    def hand_out(self, outcome: Outcome) -> None:
        """A caller that fails on its answer must not take the connection down, which everybody else uses too."""
        try:
            self.done(outcome)
        except Exception:
            log.exception("answer_failed")
