"""The identity of a command-line user, and the URL of the relay."""

import asyncio
import dataclasses
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import click

from relay import settings
from relay.auth import Tokens
from relay.cli.commands import DEFAULT_TENANT
from relay.cli.up.embedded import SECRET_FILE
from relay.cli.visible import visible
from relay.client import Agent, ClientError, Closed, Connecting, Live
from relay.client.connection.credentials import claims
from relay.errors import ConfigurationError, Malformed, RelayError
from relay.protocol.address import address
from relay.settings import Settings, env_name

CONNECT_WITHIN_S = 15.0
URL, TOKEN = "RELAY_URL", "RELAY_TOKEN"


class Failed(RelayError):
    """A failure, with the message of the client or the relay."""

    code = "failed"
    status = 400

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


def who_and_where(command: Callable[..., None]) -> Callable[..., None]:
    url = click.option("--url", help=f"The relay; several by commas. [{URL}, else http://127.0.0.1:8080]")
    who = click.option("--as", "agent", help="Who you are: tenant/agent, or a bare agent in the tenant demo.")
    token = click.option("--token", help=f"A token of yours. [{TOKEN}, else one made with the local secret]")
    return url(who(token(command)))


class Place:
    """Identity and URL: from options, the environment, or the relay on this machine."""

    def __init__(self, url: str | None, agent: str | None, token: str | None, default: str, scope: str) -> None:
        self._settings = settings.load()
        named = url or os.environ.get(URL) or f"http://{self._settings.host}:{self._settings.port}"
        self.urls = [name if "://" in name else f"http://{name}" for name in named.split(",")]
        self._token = token or os.environ.get(TOKEN)
        self._scope = scope
        self.who = self._identity(agent, default)

    def _identity(self, agent: str | None, default: str) -> str:
        if self._token is None:
            return _named(agent or default, DEFAULT_TENANT)
        claimed = claims(self._token)
        owner = claimed.sub if "/" in claimed.sub else f"{claimed.tenant}/{claimed.sub}"
        if agent is not None and _named(agent, claimed.tenant or DEFAULT_TENANT) != owner:
            raise click.UsageError(f"--as {agent} and the token, which is {owner}'s, contradict each other")
        return owner

    def address(self, name: str) -> str:
        """Of somebody who may be of one's own tenant."""
        return _named(name, self.who.partition("/")[0])

    def token(self) -> str:
        """A given one, or one made with the secret of this machine. A client never makes a secret."""
        if self._token is not None:
            return self._token
        secret = self._settings.token_secret or _existing_secret(self._settings)
        if secret is None:
            raise ConfigurationError(
                f"no token: give --token or {TOKEN}. Where the relay itself runs, its secret will do: "
                f"{env_name('token_secret')}, or the data folder ({env_name('data_dir')})"
            )
        life_s = min(3_600, self._settings.token_max_age_s)
        return Tokens(dataclasses.replace(self._settings, token_secret=secret)).make(self.who, self._scope, life_s)

    def _check_scope(self, token: str) -> None:
        """A session may begin without it, and would then wait for ever."""
        scope = claims(token).scope
        if "receive" in self._scope and scope and "receive" not in scope.split():
            raise ConfigurationError("the token lacks the scope receive")

    @asynccontextmanager
    async def agent(self, **options: Any) -> AsyncIterator[Agent]:
        """An open agent. Raises Failed with what is wrong."""
        self._check_scope(self.token())
        given = self._token is not None
        logging.getLogger("relay.client").setLevel(logging.CRITICAL)  # commands say it in their own words
        try:
            async with Agent(self.urls, token=self.token() if given else self.token, **options) as agent:
                yield agent
        except Closed as error:
            raise Failed(error.reason) from None
        except ClientError as error:
            raise Failed(str(error)) from None
        except ValueError as error:
            raise ConfigurationError(str(error)) from None


def _named(name: str, tenant: str) -> str:
    """An address as somebody has typed it. Raises UsageError."""
    try:
        return address(name, tenant)
    except Malformed as error:
        raise click.UsageError(error.message) from None


def _existing_secret(chosen: Settings) -> str | None:
    path = chosen.data_dir / SECRET_FILE
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return None
    except OSError as error:  # another user's relay, usually
        raise ConfigurationError(f"{path}: {error.strerror}; give --token or {TOKEN}") from None


async def until_live(agent: Agent) -> None:
    """Raises Failed as soon as every url has been tried in vain."""
    async with asyncio.timeout(CONNECT_WITHIN_S):
        async for state in agent.states():
            if isinstance(state, Live):
                return
            if isinstance(state, Connecting) and state.why and state.attempt > 1:
                raise Failed(state.why)
    await agent.run()
