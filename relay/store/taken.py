"""A delivery: one message that a session or lease holds."""


class Taken:
    """One delivery: the static part of the frame is in `body`. Head and opts are kept for its settlement."""

    __slots__ = ("attempt", "body", "entry", "head", "is_acked", "opts", "seq", "taken_at_ms")

    def __init__(self, entry: str, attempt: int, seq: int, head: str, opts: str, body: bytes) -> None:
        self.entry = entry
        self.attempt = attempt
        self.seq = seq
        self.head = head
        self.opts = opts
        self.body = body
        self.taken_at_ms = 0  # when its holder got it
        self.is_acked = False  # its holder has said so: it is believed once, for two acks may share a call
