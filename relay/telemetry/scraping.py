"""Who may read /metrics: callers on the same machine, the fixed token, and tokens with the scope."""

import hmac
import ipaddress
from urllib.parse import urlsplit

from aiohttp import HttpVersion11
from aiohttp.web import BaseRequest

from relay.auth import Tokens
from relay.errors import Forbidden, Unauthorized

SCOPES = frozenset(("metrics", "operator"))


FORWARDING = (  # beginnings of the headers that proxies add
    *("forwarded", "x-forwarded", "x-original-forwarded", "x-envoy", "via"),
    *("x-real-ip", "x-client-ip", "x-cluster-client-ip", "cf-connecting-ip", "true-client-ip"),
)


def check_scraper(request: BaseRequest, fixed_token: str | None, tokens: Tokens | None) -> None:
    """Raises Unauthorized or Forbidden for everybody else. If there is a fixed token, nobody does without one."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        _check_token(token.strip(), fixed_token, tokens)
    elif fixed_token is not None or not is_local(request):
        raise Unauthorized("a token with the scope metrics is needed")


def is_local(request: BaseRequest) -> bool:
    """Whether the caller itself is on this machine, as far as a request tells.

    A proxy on this machine looks the same, unless it says that it forwards, or speaks HTTP/1.0 as nginx does.
    """
    names = (name.lower() for name in request.headers)
    return (
        _is_loopback(request.remote)
        and is_unmistakable(request.host)
        and request.version >= HttpVersion11
        and not any(name.startswith(FORWARDING) for name in names)
    )


def is_unmistakable(host: str) -> bool:
    """Whether a caller used a name that nobody can lead elsewhere: localhost, or an address.

    Any other name may be an attacker's, who has it lead to this machine once his page is loaded.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _check_token(token: str, fixed_token: str | None, tokens: Tokens | None) -> None:
    if fixed_token is not None and hmac.compare_digest(token.encode(), fixed_token.encode()):
        return
    if tokens is None:
        raise Unauthorized("the token is not valid")
    if not tokens.verify(token).scopes & SCOPES:
        raise Forbidden("the token lacks the scope metrics")


def _is_loopback(remote: str | None) -> bool:
    try:
        return remote is None or ipaddress.ip_address(remote).is_loopback
    except ValueError:
        return False
