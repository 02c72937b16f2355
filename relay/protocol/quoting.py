"""Printable ASCII, which ids are, as JSON: faster than a library that expects anything."""


def quoted(text: str) -> str:
    if '"' in text or "\\" in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
