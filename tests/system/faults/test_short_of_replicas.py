"""While too few replicas have what is done, nothing is promised, and a session is served on."""

import time
from collections.abc import Iterator

import pytest

from tests.agents import Agent, make_token, messages
from tests.servers import HOST, RealServer
from tests.system.conftest import SECRET, Instance

WINDOW = 2


@pytest.fixture
def servers() -> Iterator[tuple[RealServer, RealServer]]:
    with RealServer({"repl-diskless-sync-delay": "0"}) as master, RealServer() as replica:
        with replica.client() as client:
            client.replicaof(HOST, master.port)
            deadline = time.monotonic() + 20
            while client.info("replication")["master_link_status"] != "up":
                assert time.monotonic() < deadline
                time.sleep(0.02)
        yield master, replica


async def test_settlements_that_are_not_confirmed_do_not_fill_the_window(
    servers: tuple[RealServer, RealServer],
) -> None:
    master, replica = servers
    with Instance(redis_url=master.url, durability="replica", open_tenants="acme", recheck_s=60) as instance:
        await instance.is_ready()
        alice, bob = [await Agent.connect(instance.url) for _ in range(2)]
        await alice.authenticate(token=make_token(SECRET, "acme/alice"))
        await alice.sent(*messages(6))
        await bob.authenticate(token=make_token(SECRET, "acme/bob"), window=WINDOW)
        replica.pause()

        refusals = []
        for _ in range(3):
            entries = [one["entry"] for one in await bob.deliveries(WINDOW)]
            await bob.say("ack", entries=entries, confirm=True)
            refusals += (await bob.expect("refused"))["refusals"]

        replica.resume()
        await alice.close()
        await bob.close()
        assert {one["code"] for one in refusals} == {"store_unavailable"}
        assert [one["retryable"] for one in refusals] == [True] * 6
        with master.client() as client:
            (mailbox,) = client.scan_iter("*:box:acme/bob")
            assert client.xlen(mailbox) == 0
