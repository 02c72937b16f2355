"""Who may read /metrics: callers on the same machine, the fixed token, and tokens with the scope."""

import hmac
import ipaddress
from urllib.parse import urlsplit

from relay.auth import Tokens
from relay.errors import Forbidden, Unauthorized

SCOPES = frozenset(("metrics", "operator"))


def check_scraper(
    remote: str | None, host: str, authorization: str, fixed_token: str | None, tokens: Tokens | None
) -> None:
    """Raises Unauthorized or Forbidden for everybody else. `host` is what the caller called this machine."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "bearer":
        _check_token(token.strip(), fixed_token, tokens)
    elif not (_is_loopback(remote) and is_unmistakable(host)):
        raise Unauthorized("a token with the scope metrics is needed")


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
