"""Keys of what the application keeps for its handlers."""

from aiohttp import web

from relay.auth import Tokens
from relay.core.instance.instance import Instance
from relay.http.long_poll import LongPollLimit

INSTANCE = web.AppKey("instance", Instance)
TOKENS = web.AppKey("tokens", Tokens)
LONG_POLLS = web.AppKey("long_polls", LongPollLimit)
