"""Addresses: `tenant/agent`; within one tenant the bare agent is enough."""

import re
from functools import lru_cache
from typing import Annotated

from msgspec import Meta

from relay.errors import Malformed

Address = Annotated[str, Meta(max_length=129)]

_PART = r"[a-zA-Z0-9._-]{1,64}"
_ADDRESS = re.compile(rf"{_PART}/{_PART}")
_AGENT = re.compile(_PART)


@lru_cache(maxsize=65_536)
def is_address(text: str) -> bool:
    return _ADDRESS.fullmatch(text) is not None


def is_agent(text: str) -> bool:
    return _AGENT.fullmatch(text) is not None


def address(name: str, tenant: str) -> str:
    """The full address of a name that may leave out its tenant. Raises Malformed."""
    if is_agent(name):
        return f"{tenant}/{name}"
    if is_address(name):
        return name
    raise Malformed(f"{name[:140]!r} is not an address: tenant/agent, each 1–64 of a-z A-Z 0-9 . _ -")


def tenant_of(an_address: str) -> str:
    return an_address.partition("/")[0]
