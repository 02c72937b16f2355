"""Urls of the store: what they mean, and what is wrong with them."""

from typing import Any, cast

import pytest
from redis.asyncio import SSLConnection

from relay.errors import ConfigurationError
from relay.store.redis.servers.connect import home_at
from relay.store.redis.servers.sentinels import Sentinels
from relay.store.redis.servers.topology import Topology


def behind_sentinels(url: str) -> Sentinels:
    server = home_at(url)
    assert isinstance(server, Sentinels)
    return server


def to_master(url: str) -> Any:
    return behind_sentinels(url)._to_server(("m", 1))


def to_sentinel(url: str) -> Any:
    sentinel = behind_sentinels(url)._sentinels[0]
    return sentinel._make_connection(sentinel.address)


def test_credentials_of_the_server_are_decoded() -> None:
    master = to_master("redis+sentinel://us%40er:p%2Fa%3As%25s@s1/main?db=3")

    assert (master.username, master.password, master.db) == ("us@er", "p/a:s%s", 3)


def test_sentinels_have_credentials_of_their_own() -> None:
    url = "redis+sentinel://:secret@s1:26380/main?sentinel_username=watch&sentinel_password=w%26w"

    assert (to_sentinel(url).username, to_sentinel(url).password) == ("watch", "w&w")
    assert (to_master(url).username, to_master(url).password) == (None, "secret")


def test_sentinels_are_not_given_the_credentials_of_the_server() -> None:
    assert to_sentinel("redis+sentinel://user:secret@s1/main").password is None


def test_hosts_may_leave_out_the_port_and_be_ipv6() -> None:
    server = behind_sentinels("redis+sentinel://s1,s2:5000,[::1]:5001,[fe80::2]/main")

    assert [one.address for one in server._sentinels] == [
        ("s1", 26379),
        ("s2", 5000),
        ("::1", 5001),
        ("fe80::2", 26379),
    ]


def test_with_ssl_server_and_sentinels_are_spoken_to_over_tls() -> None:
    url = "redis+sentinel://s1/main?ssl=true&ssl_cert_reqs=none&ssl_check_hostname=false"

    assert isinstance(to_master(url), SSLConnection)
    assert isinstance(to_sentinel(url), SSLConnection)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("redis+sentinel://s1:26379", "needs host:port,… and /name"),
        ("redis+sentinel:///main", "needs host:port,… and /name"),
        ("redis+sentinel://s1:http/main", "'s1:http' is not host:port"),
        ("redis+sentinel://s1:0/main", "'s1:0' is not host:port"),
        ("redis+sentinel://s1:99999/main", "'s1:99999' is not host:port"),
        ("redis+sentinel://s1,,s2/main", "'' is not host:port"),
        ("redis+sentinel://s1/main?db=first", "db must be a number, not 'first'"),
        ("redis+sentinel://s1/main?password=x", "'password' is no parameter of redis+sentinel://"),
        ("redis+sentinel://s1/main?ssl=perhaps", "ssl must be true or false, not 'perhaps'"),
        ("redis+sentinel://s1/main?ssl_ca_certs=ca.pem", "ssl_ca_certs without ssl=true would do nothing"),
        ("redis+sentinel://[::1/main", "Invalid IPv6 URL"),
        ("redis://h:port", "Port could not be cast"),
        ("rediss+cluster://h:1", "the scheme 'rediss+cluster' is not supported"),
        ("redis+cluster://h:1/0", "a Cluster has one database"),
        ("redis+cluster://h:1?db=1", "'db' is no parameter of redis+cluster://"),
        ("redis+cluster://h:1,h:0", "'h:0' is not host:port"),
    ],
)
def test_a_url_that_cannot_be_used_says_why(url: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        home_at(url)

    assert raised.value.message.startswith("RELAY_REDIS_URL: ")
    assert complaint in raised.value.message


def test_the_nodes_of_a_cluster_have_one_login_and_tls_for_all() -> None:
    cluster = home_at("redis+cluster://us%40er:p%2Fw@n1,[::1]:7001?ssl=true&ssl_cert_reqs=none")
    assert isinstance(cluster, Topology)

    node = cast(Any, cluster._make_connection(("n9", 7_009)))

    assert [seed.address for seed in cluster._seeds] == [("n1", 6_379), ("::1", 7_001)]
    assert (node.host, node.port, node.username, node.password) == ("n9", 7_009, "us@er", "p/w")
    assert isinstance(node, SSLConnection)
