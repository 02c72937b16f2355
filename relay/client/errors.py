"""Everything that the client raises.

ClientError
├── Closed               the connection is over for good; `reason` says why
│   ├── Unauthorized     the relay does not take this token or key
│   └── Replaced         a newer session of the same agent has the mailbox
├── Refused              the relay does not take a message, and never will: `code` says why
├── NotAnswered          a request that no reply will come to
│   ├── Died             it is in the dead-letter box
│   ├── RequestExpired   its time was over before anybody answered
│   └── Unanswered       the recipient acked it without a reply
├── QueueFull            the recipient's mailbox is full; `retry_after` says when to ask again
├── OutboxFull           the outbox is at its limit, and was told not to wait
├── OutboxFailed         the outbox's file cannot be used or written
├── NotAllowed           the relay refused a question, such as a presence of another tenant
├── KeyChanged           an agent shows another key than the one that is pinned
└── CannotOpen           a sealed payload that is not for us, or was changed on its way
"""


class ClientError(Exception):
    """The root of everything that the client raises.

    >>> issubclass(Refused, ClientError)
    True
    """


class Closed(ClientError):
    """The connection is over for good; `reason` says why.

    >>> Closed("the token has expired").reason
    'the token has expired'
    """

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class Unauthorized(Closed):
    """The relay does not take this token or key.

    >>> raise Unauthorized("the token is not valid", 4501)
    Traceback (most recent call last):
    relay.client.errors.Unauthorized: the token is not valid
    """


class Replaced(Closed):
    """A newer session of the same agent has the mailbox.

    >>> issubclass(Replaced, Closed)
    True
    """


class Refused(ClientError):
    """The relay does not take a message, and never will: `code` says why.

    >>> sent = await alice.send("bob", "x" * 100_000)
    >>> try:
    ...     await sent.accepted()
    ... except Refused as error:
    ...     print(error.code)
    too_large
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class NotAnswered(ClientError):
    """No reply will come to a request. `Died`, `RequestExpired` and `Unanswered` say why.

    >>> [kind.__name__ for kind in NotAnswered.__subclasses__()]
    ['Died', 'RequestExpired', 'Unanswered']
    """


class Died(NotAnswered):
    """The request is in the dead-letter box; `reason` is what its last handler said.

    >>> @bob.on("sum")
    ... async def add(message):
    ...     raise Reject("not a sum")
    >>> try:
    ...     await alice.ask("bob", "2+?", type="sum")
    ... except Died as error:
    ...     print(error.reason)
    not a sum
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RequestExpired(NotAnswered):
    """The request's time was over before anybody answered.

    >>> issubclass(RequestExpired, NotAnswered)
    True
    """


class Unanswered(NotAnswered):
    """The recipient acked the request without a reply, so that none will come.

    >>> issubclass(Unanswered, NotAnswered)
    True
    """


class QueueFull(ClientError):
    """The recipient's mailbox is full; after `retry_after` seconds there may be room.

    >>> QueueFull(30.0).retry_after
    30.0
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the recipient's mailbox is full; try again in {retry_after:.0f} s")
        self.retry_after = retry_after


class OutboxFull(ClientError):
    """The outbox is at its limit, and was told not to wait.

    >>> issubclass(OutboxFull, ClientError)
    True
    """


class OutboxFailed(ClientError):
    """The outbox's file cannot be used or written.

    >>> issubclass(OutboxFailed, ClientError)
    True
    """


class NotAllowed(ClientError):
    """The relay refused a question; `code` says why.

    >>> try:
    ...     await alice.presence("other/bob")
    ... except NotAllowed as error:
    ...     print(error.code)
    forbidden
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class KeyChanged(ClientError):
    """An agent shows another key than the one that is pinned.

    >>> issubclass(KeyChanged, ClientError)
    True
    """


class CannotOpen(ClientError):
    """A sealed payload that is not for us, or was changed on its way.

    >>> issubclass(CannotOpen, ClientError)
    True
    """


class Retry(Exception):
    """Raised by a handler: not now, try again `after` so many seconds. It counts as a failed attempt.

    >>> attempts = []
    >>> @bob.on("job")
    ... async def job(message):
    ...     attempts.append(message.attempt)
    ...     if message.attempt == 1:
    ...         raise Retry(after=0, why="the printer is busy")
    >>> sent = await alice.send("bob", "print", type="job")
    >>> await sent.ended()
    Delivered(attempt=2, was_stored=False)
    >>> attempts
    [1, 2]
    """

    def __init__(self, why: str = "Retry", *, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class Reject(Exception):
    """Raised by a handler: never. The message goes to the dead-letter box.

    >>> @bob.on("job")
    ... async def job(message):
    ...     raise Reject("no such printer")
    >>> sent = await alice.send("bob", "print", type="job")
    >>> await sent.ended()
    Dead(reason='no such printer', attempt=1)
    """
