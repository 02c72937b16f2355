"""Records that nobody can read: what a faulty program, a version to come or a hand may put into a mailbox."""

from collections.abc import Iterator

from tests.builders import NOON_MS

Record = list[bytes]  # names and values, in turn

BODY = b'{"n":1}'


def a_record(
    address: str, head: str = "", opts: str = "", body: bytes = BODY, id: str = "bad", priority: int = 0, size: int = 7
) -> Record:
    """One that can be read, unless a part of it is replaced."""
    tenant, _, name = address.partition("/")
    whole_head = f"{tenant}\t{name}\talice\t{id}\t\t\t{priority}\t{size}"
    return [b"head", (head or whole_head).encode(), b"opts", (opts or OPTS).encode(), b"body", body]


def _opts(**changed: str) -> str:
    columns = {
        "seq": "1",
        "accepted_at": str(NOON_MS),
        "expires_at": str(NOON_MS + 3_600_000),
        "not_before": "0",
        "max_attempts": "0",
        "ack_timeout_ms": "0",
        "receipt": "1",
        "request": "0",
        "timed": "0",
        "via": "",
    }
    return "\t".join((columns | changed).values())


OPTS = _opts()


def without_form(address: str, priority: int = 0) -> dict[str, Record]:
    """What scripts cannot read: head and opts, or what should be there instead."""
    tenant, _, name = address.partition("/")

    def headed(text: str) -> Record:
        return a_record(address, head=text)

    def with_opts(**changed: str) -> Record:
        return a_record(address, opts=_opts(**changed), priority=priority)

    def head_of(kind: bytes) -> Record:
        head = f"{tenant}\t{name}\talice\tbad\t".encode() + kind + f"\t\t{priority}\t7".encode()
        return [b"head", head, b"opts", OPTS.encode(), b"body", BODY]

    pair, end = f"{tenant}\t{name}", f"\t\t\t{priority}\t7"
    whole = a_record(address, priority=priority)
    return {
        "a tab too many in the id": headed(f"{pair}\talice\tb\tad{end}"),
        "a column too few": headed(f"{pair}\talice\tbad\t\t{priority}\t7"),
        "a line break in the id": headed(f"{pair}\talice\tb\nad{end}"),
        "only tabs": headed("\t" * 7),
        "very many tabs": headed(pair + "\t" * 5_000),
        "no sender": headed(f"{pair}\t\tbad{end}"),
        "no id": headed(f"{pair}\talice\t{end}"),
        "another tenant": headed(f"other\t{name}\talice\tbad{end}"),
        "another recipient": headed(f"{tenant}\tcarol\talice\tbad{end}"),
        "a priority in words": headed(f"{pair}\talice\tbad\t\t\thigh\t7"),
        "a priority of two digits": headed(f"{pair}\talice\tbad\t\t\t10\t7"),
        "a size in words": headed(f"{pair}\talice\tbad\t\t\t{priority}\tbig"),
        "a size below zero": headed(f"{pair}\talice\tbad\t\t\t{priority}\t-7"),
        "a size of thirty digits": headed(f"{pair}\talice\tbad\t\t\t{priority}\t{'9' * 30}"),
        "a type that is not UTF-8": head_of(b"\xff\xfe"),
        "a type spelled longer than need be": head_of(b"\xc0\xaf"),
        "half of a surrogate pair": head_of(b"\xed\xa0\x80"),
        "beyond the last character": head_of(b"\xf4\x90\x80\x80"),
        "a character cut off": head_of("é".encode()[:1]),
        "an empty head": [b"head", b"", *whole[2:]],
        "an empty opts": [*whole[:3], b"", *whole[4:]],
        "opts in words": [*whole[:3], b"\t".join([b"one"] * 9), *whole[4:]],
        "opts of eight columns": [*whole[:3], "\t".join(OPTS.split("\t")[:8]).encode(), *whole[4:]],
        "a number below zero": with_opts(expires_at="-1"),
        "a number with a fraction": with_opts(accepted_at="1.8e12"),
        "a number of thirty digits": with_opts(seq="9" * 30),
        "a number of four hundred digits": with_opts(not_before="9" * 400),
        "a number with zeros before it": with_opts(seq="007"),
        "no number": with_opts(accepted_at=""),
        "a session that is not ASCII": with_opts(via="ä.1"),
        "no head": whole[2:],
        "no opts": [*whole[:2], *whole[4:]],
        "no body": whole[:4],
        "one field": [b"x", b"y"],
        "other names": [b"a", whole[1], b"b", whole[3], b"c", whole[5]],
        "another order": [*whole[4:], *whole[:4]],
        "bytes": [bytes(range(256)), bytes(range(256))],
        "very many fields": [b"f", b"v"] * 5_000,
    }


def without_content(address: str, priority: int = 0) -> dict[str, Record]:
    """What only an instance can tell: the body."""

    def with_body(body: bytes, size: int | None = None) -> Record:
        return a_record(address, body=body, priority=priority, size=len(body) if size is None else size)

    return {
        "a payload that is no JSON": with_body(b"{n:1}"),
        "half a payload": with_body(b'{"n":'),
        "a payload that is not UTF-8": with_body(b'"\xff\xfe"'),
        "an empty payload": with_body(b""),
        "two payloads": with_body(b"1 2"),
        "a payload larger than it is": with_body(BODY + b',"type":"a"', 2 * len(BODY)),
        "a payload smaller than it is": with_body(BODY, 3),
        "more behind it that is no JSON": with_body(BODY + b',"type":', len(BODY)),
        "more behind it that does not begin with a comma": with_body(BODY + b'}"type":"a"', len(BODY)),
        "headers that are a list": with_body(BODY + b',"headers":["a"]', len(BODY)),
        "a type that is a number": with_body(BODY + b',"type":7', len(BODY)),
        "a body of the first release without a payload": with_body(b'"id":"bad"'),
        "a body of the first release that is no JSON": with_body(b'"id":,"payload":7'),
    }


def unreadable(address: str, priority: int = 0) -> dict[str, Record]:
    return without_form(address, priority) | without_content(address, priority)


def letters(address: str) -> Iterator[Record]:
    """The same as dead letters, and some that are none."""
    how = [
        b"entry",
        b"1800000000000-0",
        b"attempts",
        b"1",
        b"at_ms",
        b"1800000000000",
        b"reason",
        b"x",
        b"history",
        b"",
    ]
    for record in unreadable(address).values():
        yield [*record, *how]
    whole = a_record(address)
    yield whole  # nothing of how it came there
    for n in range(1, len(how), 2):
        yield [*whole, *how[:n], b"\xff\t\n", *how[n + 1 :]]
        yield [*whole, *how[:n], b"9" * 400, *how[n + 1 :]]
