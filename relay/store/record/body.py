"""The body of a stored message: its payload as it was sent, and behind it the fields that few messages have.

    payload ,"type":"…","thread":"…","reply_to":"…","headers":{…},"signature":"…","more":true

Head and opts have the other fields of a delivery. The payload is found by its size: to read through it would be to
depend on how deeply it is nested.
"""


def parted(body: bytes, size: int) -> tuple[bytes, bytes]:
    """The payload of so many bytes, and what is behind it."""
    return body[:size], body[size:]


def payload_in(body: bytes, size: int) -> bytes:
    """The payload of so many bytes, as its sender wrote it."""
    return parted(body, size)[0]


def without_payload(body: bytes, size: int) -> bytes:
    """The rest, as a JSON object."""
    return b"{%b}" % parted(body, size)[1][1:]
