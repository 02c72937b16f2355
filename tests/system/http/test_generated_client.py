"""A client that is generated from the OpenAPI document works against the relay that it describes."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.agents import make_token
from tests.system.conftest import SECRET, Relay

pytest.importorskip("openapi_python_client", reason="openapi-python-client is not installed")

GENERATE = (sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--fail-on-warning")


class Generated:
    """The generated package, part by part."""

    def __init__(self) -> None:
        self.models: Any = importlib.import_module("generated_relay_client.models")
        self._client: Any = importlib.import_module("generated_relay_client.client")

    def client(self, url: str, token: str) -> Any:
        return self._client.AuthenticatedClient(base_url=url, token=token)

    def call(self, family: str, name: str) -> Any:
        return importlib.import_module(f"generated_relay_client.api.{family}.{family}_{name}").sync


@pytest.fixture(scope="module")
def generated(relay: Relay, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generated]:
    """The package, made from the document of a running relay."""
    folder = tmp_path_factory.mktemp("generated")
    document, config = folder / "openapi.json", folder / "config.json"
    document.write_text(requests.get(f"{relay.a.url}/openapi.json", timeout=10).text)
    config.write_text(json.dumps({"post_hooks": []}))
    where = ("--path", document, "--config", config, "--output-path", folder / "generated_relay_client")
    subprocess.run([*GENERATE, *where], check=True, cwd=folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield Generated()


def test_it_sends_leases_replies_and_reads_the_answer(relay: Relay, generated: Generated) -> None:
    models = generated.models
    alice_token, bob_token = (make_token(SECRET, f"generated/{name}", "send receive") for name in ("alice", "bob"))
    message = models.Outgoing(id="m-1", payload={"sum": [2, 2]}, request=True, type_="job")
    lease = models.Lease(max_=10, wait_s=5, types=["job"])

    with generated.client(relay.a.url, alice_token) as alice, generated.client(relay.a.url, bob_token) as bob:
        accepted = generated.call("messages", "send")("bob", client=alice, body=message)
        (leased,) = generated.call("leases", "lease")("bob", client=bob, body=lease).messages
        reply = models.Reply(lock_token=leased.lock_token, payload={"sum": 4})
        settled = generated.call("settling", "reply")("bob", leased.entry, client=bob, body=reply)
        task = generated.call("tasks", "task")("m-1", client=alice, wait_s=5)

    assert isinstance(accepted, models.Accepted)
    assert (leased.id, leased.from_, leased.payload) == ("m-1", "generated/alice", {"sum": [2, 2]})
    assert (settled.entry, settled.settled) == (leased.entry, "reply")
    assert (task.state, task.reply) == ("replied", {"sum": 4})


def test_a_refusal_is_an_error_of_the_document(relay: Relay, generated: Generated) -> None:
    with generated.client(relay.a.url, "made up") as stranger:
        refused = generated.call("agents", "show")("bob", client=stranger)

    assert isinstance(refused, generated.models.Error)
    assert (refused.error.code, refused.error.retryable) == ("unauthorized", False)
