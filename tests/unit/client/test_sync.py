"""The client for scripts: its examples, which run against a fake relay where alice and bob are."""

import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import relay.client
from relay import sync
from relay.client import Message
from relay.testing import FakeRelay
from tests.unit.client import examples
from tests.unit.client.test_examples import members

ROOT = Path(__file__).parents[3]
DOCUMENTED = {kind.__name__: kind for kind in (sync.Agent, sync.Sent)} | {
    f"{kind.__name__}.{name}": member for kind in (sync.Agent, sync.Sent) for name, member in members(kind)
}


@pytest.mark.parametrize("name", DOCUMENTED)
async def test_the_example_is_true(name: str, tmp_path: Path) -> None:
    doc = inspect.getdoc(DOCUMENTED[name]) or ""
    fake = FakeRelay()
    with sync.Agent(fake, token=fake.token("alice")) as alice, sync.Agent(fake, token=fake.token("bob")) as bob:
        names = {one: getattr(relay.client, one) for one in relay.client.__all__}
        names |= {"relay": fake, "alice": alice, "bob": bob, "folder": tmp_path, "Agent": sync.Agent}
        names["__name__"] = "__examples__"
        wrong = await examples.run_examples(examples.examples_of(doc), names)

    assert ">>>" in doc
    assert wrong == []


@pytest.mark.parametrize(("kind", "model"), [(sync.Agent, relay.client.Agent), (sync.Sent, relay.client.Sent)])
def test_scripts_can_do_what_programs_can(kind: type, model: type) -> None:
    here, there = ({name for name, _ in members(one)} for one in (kind, model))

    assert there - here == set()


SCRIPT = """
from relay.sync import Agent
from relay.testing import FakeRelay

relay = FakeRelay()
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", SCRIPT + program]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=20)


def test_a_script_may_end_in_the_middle_of_everything() -> None:
    done = run("""
bob = Agent(relay, token=relay.token("bob")).__enter__()
bob.send("bob", 1)
messages = bob.messages()
print(next(messages).payload)
""")

    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_a_forked_process_has_agents_of_its_own() -> None:
    done = run("""
import os

with Agent(relay, token=relay.token("alice")) as alice:
    alice.live()
child = os.fork()
if child == 0:
    relay = FakeRelay()
    with Agent(relay, token=relay.token("alice")) as alice:
        alice.live()
        print("live", flush=True)
        os._exit(0)
print(os.waitpid(child, 0)[1])
""")

    assert (done.returncode, done.stdout) == (0, "live\n0\n"), done.stderr


def test_a_coroutine_that_would_wait_for_itself_is_told_so() -> None:
    fake = FakeRelay()
    with sync.Agent(fake, token=fake.token("alice")) as alice, sync.Agent(fake, token=fake.token("bob")) as bob:

        @bob.on()
        async def handle(message: Message[Any]) -> Any:
            return bob.ask("carol", message.payload)

        sent = alice.send("bob", 1, max_attempts=1)

        assert "make the handler a plain function" in str(sent.ended())


def test_threads_share_an_agent() -> None:
    fake = FakeRelay()
    with sync.Agent(fake, token=fake.token("alice")) as alice, sync.Agent(fake, token=fake.token("bob")) as bob:

        @bob.on(concurrency=8)
        def double(message: Message[int]) -> int:
            return message.payload * 2

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda n: alice.ask("bob", n), range(100)))

    assert answers == [2 * n for n in range(100)]
