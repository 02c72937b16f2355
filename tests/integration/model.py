"""The model: a plain mailbox service in memory, which a real store must agree with."""

from collections import Counter
from dataclasses import dataclass, field

from tests.builders import Desk, Puller

SENDERS = ("acme/alice", "acme/dave")
RECIPIENTS = ("acme/bob", "acme/carol")
PRIORITIES = (0, 5, 9)
IDS = tuple(f"m-{n}" for n in range(8))
TTL_MS, WINDOW_MS, BURY_AGAIN_MS = 3_000_000, 60_000, 60_000
MAX_MESSAGES, MAX_BYTES, DEAD_MAX = 6, 1_024, 2
FINAL = ("acked", "expired", "dead", "cancelled")


@dataclass(eq=False)
class Mail:
    """What the model knows of one accepted message."""

    id: str
    sender: str
    to: str
    priority: int
    size: int
    entry: str
    seq: int
    accepted_at: int
    expires_at: int
    not_before: int
    max_attempts: int
    ack_ms: int
    receipt: bool | str
    state: str = "available"  # "held" | "parked" | "to bury" | one of FINAL
    holder: "Session | None" = None
    attempt: int = 1
    until_ms: int | None = None  # when a timed hold, a delay or the wait for a burial is over

    @property
    def alive(self) -> bool:
        return self.state not in FINAL

    @property
    def stream_id(self) -> str:
        return self.entry.partition("p")[0]

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands in its lane."""
        ms, _, number = self.stream_id.partition("-")
        return int(ms), int(number)

    @property
    def handle(self) -> tuple[str, str]:
        """What names it in the event log: a handle is unique in its mailbox only."""
        return self.to.partition("/")[2], self.entry

    @property
    def key(self) -> tuple[str, str, str]:
        return self.sender, self.to, self.id

    def becomes(self, state: str, until_ms: int | None = None, holder: "Session | None" = None) -> None:
        self.state, self.until_ms, self.holder = state, until_ms, holder


@dataclass(eq=False)
class Session:
    puller: Puller
    desk: Desk
    instance: str
    mode: str
    here: bool = True  # whether the store has it
    crashed: bool = False  # its process is gone and does nothing any more
    knows: list[str] = field(default_factory=list)  # the entries it was told to hold

    @property
    def address(self) -> str:
        return self.puller.address


class Model:
    """The rules of a mailbox, in the plainest way."""

    def __init__(self) -> None:
        self.mails: list[Mail] = []
        self.ended: dict[tuple[str, str, str], tuple[int, str]] = {}
        self.threads: dict[tuple[str, str], tuple[int, int]] = {}  # last sequence number, and when
        self.dead_letters: Counter[str] = Counter()
        self.receipts: Counter[tuple[str, str, str]] = Counter()  # sender, id, state

    def living(self, address: str) -> list[Mail]:
        """What is in a mailbox, lane by lane, highest first, each in order."""
        found = [mail for mail in self.mails if mail.to == address and mail.alive]
        return sorted(found, key=lambda mail: (-mail.priority, mail.place))

    def end(self, mail: Mail, how: str, now_ms: int) -> None:
        mail.becomes(how)
        self.ended[mail.key] = (now_ms, how)
        if (how in ("acked", "dead") and mail.receipt) or (how == "expired" and mail.receipt == "all"):
            self.receipts[mail.sender, mail.id, "delivered" if how == "acked" else how] += 1

    def release(self, session: Session) -> None:
        for mail in self.mails:
            if mail.holder is session:
                mail.becomes("available")

    def bury(self, mail: Mail, now_ms: int) -> None:
        if self.dead_letters[mail.to] >= DEAD_MAX:
            mail.becomes("to bury", now_ms + BURY_AGAIN_MS)
        else:
            self.dead_letters[mail.to] += 1
            self.end(mail, "dead", now_ms)

    def fail(self, mail: Mail, now_ms: int, retry: bool, delay_ms: int) -> None:
        if not retry or 0 < mail.max_attempts <= mail.attempt:
            self.bury(mail, now_ms)
            return
        if delay_ms < 0:
            delay_ms = min(600_000, 10_000 * 2 ** (mail.attempt - 1))
        mail.attempt += 1
        if delay_ms > 0:
            mail.becomes("parked", now_ms + delay_ms)
        else:
            mail.becomes("available")

    def answer(self, mail: Mail, session: Session) -> str | None:
        """How an attempt of this session to settle is refused, if it is."""
        if not mail.alive:
            return "not_found"
        return None if mail.holder is session else "lock_lost"

    def take(self, session: Session, room: int, now_ms: int) -> list[Mail]:
        given: list[Mail] = []
        backlog_end = tuple(map(int, session.puller.backlog_end.split("-")))
        for mail in self.living(session.address):
            if len(given) == room:
                break
            if mail.state != "available" or (not session.puller.drained and mail.place > backlog_end):
                continue
            if mail.expires_at <= now_ms:
                self.end(mail, "expired", now_ms)
            elif mail.not_before > now_ms:
                mail.becomes("parked", mail.not_before)
            else:
                timeout_ms = mail.ack_ms or session.puller.ack_timeout_ms
                mail.becomes("held", now_ms + timeout_ms if timeout_ms else None, session)
                given.append(mail)
        return given

    def due(self, mail: Mail) -> dict[str, int]:
        """What must happen to a mail, and when."""
        found = {}
        if mail.until_ms is not None:
            found[{"held": "hold", "parked": "park", "to bury": "bury"}[mail.state]] = mail.until_ms
        if mail.expires_at - mail.accepted_at < TTL_MS:
            found["ttl"] = mail.expires_at
        return found

    def overdue(self, members: list[str], now_ms: int) -> None:
        """What becomes of the members that a worker saw, now or a while ago."""
        mails = {f"{mail.to}\t{mail.entry}": mail for mail in self.mails if mail.alive}
        for kind, _, place in (member.partition("\t") for member in members):
            mail = mails.get(place)
            if mail is None or not mail.alive or self.due(mail).get(kind, now_ms + 1) > now_ms:
                continue
            if kind == "ttl":
                self.end(mail, "expired", now_ms)
            elif kind == "hold":
                self.fail(mail, now_ms, retry=True, delay_ms=0)
            elif kind == "park":
                mail.becomes("available")
            else:
                self.bury(mail, now_ms)

    def sweep(self, address: str, now_ms: int) -> int:
        """Ends the expired at the front of each lane."""
        count = 0
        blocked: set[int] = set()
        for mail in self.living(address):
            if mail.priority in blocked:
                continue
            if mail.expires_at <= now_ms:
                self.end(mail, "expired", now_ms)
                count += 1
            else:
                blocked.add(mail.priority)
        return count
