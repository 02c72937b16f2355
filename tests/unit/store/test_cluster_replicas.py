"""How many replicas of a Cluster's master count."""

import pytest

from relay.store.redis.servers.connect import home_at
from relay.store.redis.servers.topology import STILL_COUNTS_S, Node, Topology


@pytest.fixture
def node() -> Node:
    cluster = home_at("redis+cluster://n1")
    assert isinstance(cluster, Topology)
    return cluster.node(("n1", 6379))


def later(node: Node, s: float) -> None:
    node._counts = {count: at - s for count, at in node._counts.items()}


def test_a_replica_that_is_out_of_sight_for_a_moment_still_counts(node: Node) -> None:
    node.count_replicas(2)
    node.count_replicas(1)

    assert node.replicas == 2


def test_a_replica_that_stays_away_does_not_count_any_more(node: Node) -> None:
    node.count_replicas(2)
    later(node, STILL_COUNTS_S)
    node.count_replicas(1)

    assert node.replicas == 1


def test_who_was_stopped_asks_for_all_that_counted_before(node: Node) -> None:
    node.count_replicas(2)
    later(node, 40)

    assert node.replicas == 2
