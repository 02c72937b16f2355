"""The dashboard: a page for people, and the files that it is made of."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

import relay
from relay.errors import NotFound
from relay.http.operation import operation
from relay.http.page_headers import page_headers

routes = web.RouteTableDef()

FOLDER = Path(relay.__file__).with_name("web")
MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
HEADERS = page_headers("'self'", "'self'")


@dataclass(frozen=True, slots=True)
class File:
    body: bytes
    media_type: str
    etag: str


def _read(path: Path) -> File:
    body = path.read_bytes()
    return File(body, MEDIA_TYPES[path.suffix], hashlib.sha256(body).hexdigest()[:16])


FILES = {path.relative_to(FOLDER).as_posix(): _read(path) for path in FOLDER.rglob("*") if path.suffix in MEDIA_TYPES}


@routes.get("/")
@operation(anybody=True, answers={200: "text/html", 304: None}, uses_store=False)
async def page(request: web.Request) -> web.Response:
    """Open the dashboard.

    A page that needs nothing from elsewhere. It asks for a token and keeps it in memory.
    """
    return _answer(request, FILES["index.html"])


@routes.get("/web/{file:.+}")
@operation(anybody=True, answers={200: tuple(MEDIA_TYPES.values()), 304: None}, errors=(NotFound,), uses_store=False)
async def part(request: web.Request) -> web.Response:
    """Get a part of the dashboard."""
    file = FILES.get(request.match_info["file"])
    if file is None:
        raise NotFound("no such file")
    return _answer(request, file)


def _answer(request: web.Request, file: File) -> web.Response:
    """The file, unless the browser has it already."""
    has_it = any(tag.value == file.etag for tag in request.if_none_match or ())
    response = web.Response(status=304, headers=HEADERS) if has_it else _whole(file)
    response.etag = file.etag
    return response


def _whole(file: File) -> web.Response:
    return web.Response(body=file.body, content_type=file.media_type, charset="utf-8", headers=HEADERS)
