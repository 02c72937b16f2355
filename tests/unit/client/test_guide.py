"""The guide: every block of it runs, against a fake relay."""

import ast
import asyncio
import inspect
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import relay.client
from relay.testing import FakeRelay

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs/client.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
SAID = [
    "memory\nacme/alice {'n': 1}\n",
    "memory\n",
    "ann 13\nDelivered(attempt=2, was_stored=False)\n",
    "[('ann', 5)]\n",
    "4\nonce\nupon\na\ntime\n",
    "1\n",
    "when do we meet? True True\nat noon\n",
    "Expired()\n",
]


def names_of(fake: FakeRelay, folder: Path) -> dict[str, Any]:
    class Job(msgspec.Struct):
        account: str
        amount: int

    known = {name: getattr(relay.client, name) for name in relay.client.__all__}
    known |= {"ALICE": fake.token("alice"), "BOB": fake.token("bob"), "RELAY": fake, "FakeRelay": FakeRelay}
    return known | {
        "folder": folder,
        "asyncio": asyncio,
        "timedelta": timedelta,
        "msgspec": msgspec,
        "Job": Job,
        "__name__": "guide",
    }


@pytest.mark.parametrize("number", range(len(BLOCKS)))
async def test_the_block_does_what_it_shows(number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeRelay()
    names = names_of(fake, tmp_path)
    source = re.sub(r"^(RELAY|ALICE|BOB|folder) = .*\n", "", BLOCKS[number], flags=re.MULTILINE)
    code = compile(source, f"block {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    running = eval(code, names)
    if inspect.isawaitable(running):
        async with asyncio.timeout(10):
            await running

    assert capsys.readouterr().out == SAID[number]


def test_every_block_is_run() -> None:
    assert len(BLOCKS) == len(SAID)


def test_every_link_of_the_guide_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)", GUIDE)

    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
