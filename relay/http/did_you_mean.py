"""Refuses unknown names and suggests the likely one, so that a typing error is not ignored."""

from collections.abc import Iterable
from difflib import get_close_matches

from relay.errors import Malformed


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raises Malformed for the first name that is not known."""
    names = list(known)
    for name in given:
        if name not in names:
            raise Malformed(f"{name[:64]!r} is no {what} here{hint(name, names)}")


def hint(name: str, known: Iterable[str]) -> str:
    """A suggestion for an unknown name, or nothing. The name itself is never suggested."""
    near = get_close_matches(name, [other for other in known if other != name], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
