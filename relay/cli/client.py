"""A person's client: `relay send`, `listen`, `reply` and `ask`, on top of the Python client.

Exit codes: 0 success · 1 failure, with one line that says why · 2 wrong usage · 3 timeout, or no reply will come ·
130 interrupted.
"""

import asyncio
import getpass
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.progress import track

from relay.cli.commands import Span, run
from relay.cli.place import CONNECT_WITHIN_S, Failed, Place, until_live, who_and_where
from relay.cli.terminal import ReaderGone, Screen
from relay.cli.visible import Console
from relay.client import Agent, Connecting, Live, NotAnswered, QueueFull, Sent

LONG_INPUT = 200  # lines of input from which on progress is shown
AT_ONCE = 100  # lines that are sent together


class NothingCame(Failed):
    """A timeout, or no reply will come."""

    code = "nothing_came"
    status = 504


class InVain(click.ClickException):
    """Ends the command with exit code 3."""

    exit_code = 3


# -- payloads


def payload_from(text: str) -> Any:
    """JSON if it is JSON, as it was written; else the text itself as a JSON string."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
        return msgspec.Raw(text.strip().encode())
    except (msgspec.DecodeError, RecursionError):
        return text


def _text(payload: str | None, file: Path | None) -> str:
    if payload is not None and file is not None:
        raise click.UsageError("the payload is given twice: as an argument and with --file")
    if payload is not None:
        return payload
    data = file.read_bytes() if file is not None else sys.stdin.buffer.read()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise click.UsageError("the payload is not text in UTF-8; encode it, for example with base64") from None


def payload_options(command: Callable[..., None]) -> Callable[..., None]:
    path = click.Path(exists=True, path_type=Path, dir_okay=False)
    file = click.option("--file", type=path, help="Take the payload from here.")
    kind = click.option("--type", "kind", help="The message's type.")
    thread = click.option("--thread", help="The conversation it belongs to.")
    return file(kind(thread(command)))


# -- the commands


@click.command()
@click.argument("to")
@click.argument("payload", required=False)
@payload_options
@click.option("--id", "message_id", help="The message's id; made when left out.")
@click.option("--ttl", type=Span(), help="How long it may wait. [the relay's, a week]")
@click.option("--lines", is_flag=True, help="Every line of the input is a message.")
@click.option("--wait", "wait_s", type=Span(), help="Ask, and wait this long for the reply.")
@who_and_where
def send(
    to: str,
    payload: str | None,
    file: Path | None,
    kind: str | None,
    thread: str | None,
    message_id: str | None,
    ttl: float | None,
    lines: bool,
    wait_s: float | None,
    url: str | None,
    agent: str | None,
    token: str | None,
) -> None:
    """Send a message TO an agent. The payload is the argument, a file, or standard input; JSON if it is JSON."""
    if lines and (message_id or wait_s or payload is not None):
        raise click.UsageError("--lines is for an input of many messages: not with a payload, --id or --wait")
    if wait_s and (message_id or ttl):
        raise click.UsageError("--wait asks: a request has an id of its own and lives as long; not with --id or --ttl")
    place = Place(url, agent, token, "cli", "send")
    recipient = place.address(to)
    text = _text(payload, file)
    options = {"type": kind, "thread": thread, "ttl": ttl}
    if lines:
        run(_send_lines(place, recipient, text.splitlines(), options))
    elif wait_s is not None:
        run(_ask(place, recipient, payload_from(text), wait_s, {"type": kind, "thread": thread}, streams=False))
    else:
        run(_send(place, recipient, payload_from(text), {**options, "id": message_id}))


async def _send(place: Place, to: str, payload: Any, options: dict[str, Any]) -> None:
    async with place.agent() as agent:
        await until_live(agent)
        sent = await agent.send(to, payload, **options)
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                durability = await sent.accepted()
        except TimeoutError:
            raise NothingCame(_held_up(sent, "it was not sent")) from None
        known = ", which the relay had already" if sent.is_duplicate else ""
        words = f"sent to {to} as {agent.address}: {sent.id} ({durability}){known}"
        await Screen().tell(words, id=sent.id, durability=durability, duplicate=sent.is_duplicate)


async def _send_lines(place: Place, to: str, lines: list[str], options: dict[str, Any]) -> None:
    is_shown = len(lines) >= LONG_INPUT and sys.stderr.isatty()
    console = Console(stderr=True)  # standard output is for programs
    async with place.agent() as agent:
        await until_live(agent)
        for start in track(range(0, len(lines), AT_ONCE), "sending", console=console, disable=not is_shown):
            payloads = [payload_from(line) for line in lines[start : start + AT_ONCE]]
            sents = await agent.send_many(to, payloads, **options)
            try:
                async with asyncio.timeout(CONNECT_WITHIN_S):
                    await agent.flush()
            except TimeoutError:
                rest = len(lines) - start - len(sents) + agent.unsent
                raise NothingCame(_held_up(sents[-1], f"the last {rest} of {len(lines)} lines were not sent")) from None
        number = f"{len(lines)} messages" if len(lines) != 1 else "1 message"
        await Screen().tell(f"{number} sent to {to} as {agent.address}", sent=len(lines), to=to)


def _held_up(sent: Sent, outcome: str) -> str:
    why = {
        "queue_full": f"the mailbox of {sent.to} is full",
        "rate_limited": "the relay takes no more so fast",
        "store_unavailable": "the relay's store is away",
    }
    return f"{why.get(sent.held_up_by or '', 'the relay does not answer')}; {outcome}"


@click.command()
@click.argument("to")
@click.argument("payload", required=False)
@payload_options
@click.option(
    "--timeout", "timeout_s", type=Span(), default="30s", show_default=True, help="Wait for the reply this long."
)
@click.option("--stream", "streams", is_flag=True, help="Print the parts of the reply as they come.")
@who_and_where
def ask(
    to: str,
    payload: str | None,
    file: Path | None,
    kind: str | None,
    thread: str | None,
    timeout_s: float,
    streams: bool,
    url: str | None,
    agent: str | None,
    token: str | None,
) -> None:
    """Ask an agent, and print its reply."""
    place = Place(url, agent, token, "cli", "send")
    recipient = place.address(to)
    content = payload_from(_text(payload, file))
    run(_ask(place, recipient, content, timeout_s, {"type": kind, "thread": thread}, streams))


async def _ask(place: Place, to: str, payload: Any, timeout_s: float, options: dict[str, Any], streams: bool) -> None:
    async with place.agent() as agent:
        await until_live(agent)
        try:
            async for part in _parts(agent, to, payload, timeout_s, options, streams):
                words = part if isinstance(part, str) else msgspec.json.encode(part).decode()
                await Screen().tell(f"{to}: {words}", **{"from": to, "payload": part})
        except TimeoutError:
            raise NothingCame(f"no reply within {timeout_s:.0f} s; {to} has not handled it") from None
        except NotAnswered as error:
            raise NothingCame(f"{to} gave no reply: {error}") from None
        except QueueFull as error:
            raise Failed(str(error)) from None


async def _parts(
    agent: Agent, to: str, payload: Any, timeout_s: float, options: dict[str, Any], streams: bool
) -> AsyncIterator[Any]:
    if not streams:
        yield await agent.ask(to, payload, timeout=timeout_s, **options)
        return
    async for part in agent.ask_stream(to, payload, timeout=timeout_s, **options):
        yield part


@click.command()
@click.option("--no-ack", is_flag=True, help="Only look: messages stay in the mailbox and come again.")
@click.option("--count", type=click.IntRange(1), help="End after this many messages.")
@click.option("--timeout", "timeout_s", type=Span(), help="End after so long; with code 3 if --count is not reached.")
@click.option("--json/--pretty", "as_json", default=None, help="[pretty on a terminal, JSON lines elsewhere]")
@who_and_where
def listen(
    no_ack: bool,
    count: int | None,
    timeout_s: float | None,
    as_json: bool | None,
    url: str | None,
    agent: str | None,
    token: str | None,
) -> None:
    """Receive messages and print each. A message is confirmed once it has really been written out."""
    place = Place(url, agent, token, getpass.getuser(), "send receive")
    screen = Screen(None if as_json is None else not as_json)
    try:
        run(_listen(place, screen, not no_ack, count, timeout_s))
    except ReaderGone:
        return


async def _listen(place: Place, screen: Screen, acks: bool, count: int | None, timeout_s: float | None) -> None:
    seen = 0
    async with place.agent() as agent:
        watching = asyncio.create_task(_tell_states(agent, place))
        try:
            async with asyncio.timeout(timeout_s):
                async for message in agent.messages(ack=False):
                    await screen.show(message)
                    seen += 1
                    if acks:
                        message.ack()
                    if seen == count:
                        return
        except TimeoutError:
            if count is not None:
                raise NothingCame(f"{seen} of {count} messages came in time") from None
        finally:
            watching.cancel()


async def _tell_states(agent: Agent, place: Place) -> None:
    """Shows a person as whom this listens, or why it does not."""
    async for state in agent.states():
        if isinstance(state, Live):
            click.echo(f"listening as {agent.address} at {state.url}; Ctrl-C ends", err=True)
        elif isinstance(state, Connecting) and state.why:
            click.echo(f"{state.why}; trying again as {place.who}", err=True)


@click.command()
@click.argument("message_id", metavar="ID")
@click.argument("payload", required=False)
@click.option("--file", type=click.Path(exists=True, path_type=Path, dir_okay=False), help="Take the reply from here.")
@click.option("--timeout", "timeout_s", type=Span(), default="10s", show_default=True, help="Look for it this long.")
@who_and_where
def reply(
    message_id: str,
    payload: str | None,
    file: Path | None,
    timeout_s: float,
    url: str | None,
    agent: str | None,
    token: str | None,
) -> None:
    """Answer the request with this ID (or entry) in your mailbox. Takes the mailbox from a running `relay listen`."""
    place = Place(url, agent, token, getpass.getuser(), "send receive")
    content = payload_from(_text(payload, file))
    run(_reply(place, message_id, content, timeout_s))


async def _reply(place: Place, message_id: str, payload: Any, timeout_s: float) -> None:
    async with place.agent(window=1_000) as agent:
        await until_live(agent)
        try:
            async with asyncio.timeout(timeout_s):
                async for message in agent.messages(ack=False):
                    if message_id not in (message.id, message.entry):
                        continue
                    if not message.is_request:
                        raise Failed(f"{message_id} is not a request: nobody waits for a reply")
                    message.reply(payload)
                    await agent.presence(agent.address)  # answered after the reply
                    words = f"replied to {message.sender} as {agent.address}"
                    await Screen().tell(words, id=message.id, to=message.sender, replied=True)
                    return
        except TimeoutError:
            raise NothingCame(f"no message {message_id} waits for {place.who}") from None


COMMANDS = (send, listen, reply, ask)
