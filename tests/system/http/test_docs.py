"""The lines of docs/http.md, run as they stand."""

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("common")

PAGE = (Path(__file__).parents[3] / "docs/http.md").read_text()
ENDED_BY_TIME = 28  # what curl says of a stream that it was told to read so long


def run(script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_every_line_to_copy_is_right(room: Room) -> None:
    everything = "send receive inspect admin metrics"
    tokens = {"ALICE": room.token("alice"), "BOB": room.token("bob"), "ROOT": room.token("root", everything)}
    setup, *blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    assert all(f"{name}=" in setup for name in ("URL", *tokens))

    lines = [f"URL={room.a.url}", *(f"{name}='Authorization: Bearer {token}'" for name, token in tokens.items())]
    for line in "".join(blocks).replace("tenants/demo", f"tenants/{room.tenant}").splitlines():
        quick = line.replace("-m 3", "-m 0.5").replace("wait_s=2", "wait_s=0.1").replace("wait_s=1", "wait_s=0.1")
        lines += [quick, f"said=$?; [ $said = 0 ] || [ $said = {ENDED_BY_TIME} ] || exit $said; echo"]
    done = await asyncio.to_thread(run, "\n".join(lines))

    assert (done.returncode, done.stderr) == (0, "")
    assert '"error"' not in done.stdout
    for word in (
        '"state":"queued"',
        "Location: /v1/tasks/ask-1",
        '"lock_token"',
        '"settled":"nack"',
        '"reason":"cannot"',
    ):
        assert word in done.stdout
    for word in ('"new_entry"', '"removed":true', '"kind":"cancelled"', '"anomalies"', "event: counters", '"ready"'):
        assert word in done.stdout
