"""Text in tab-separated columns, as the store keeps it."""

import re

_ESCAPED = re.compile(r"\\(.)")
_MEANING = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}


def escape(text: str) -> str:
    """Text escaped for a tab-separated column."""
    if "\\" in text or "\t" in text or "\n" in text or "\r" in text:
        return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return text


def unescape(text: str) -> str:
    """The text that escape() made safe for a column."""
    return _ESCAPED.sub(lambda match: _MEANING.get(match[1], match[1]), text) if "\\" in text else text
