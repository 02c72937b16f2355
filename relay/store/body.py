"""The body of a stored message: the fields of a delivery that never change, as JSON without its braces.

The payload is found by its place and its size. To read through it would be to depend on how deeply it is nested.
"""

_PAYLOAD = b',"payload":'  # stands in no id before it: there a quote has a backslash


def payload_in(body: bytes, size: int) -> bytes:
    """The payload of so many bytes, as its sender wrote it."""
    start, end = _place(body, size)
    return body[start + len(_PAYLOAD) : end]


def without_payload(body: bytes, size: int) -> bytes:
    """The rest, as a JSON object."""
    start, end = _place(body, size)
    return b"{%b%b}" % (body[:start], body[end:])


def _place(body: bytes, size: int) -> tuple[int, int]:
    start = body.index(_PAYLOAD)
    return start, start + len(_PAYLOAD) + size
