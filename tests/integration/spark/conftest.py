"""One Spark for each process that runs tests, and event logs filled by hand."""

import secrets
from collections.abc import Iterator

import pytest
import redis
from pyspark.sql import SparkSession

from spark.session import spark_session
from tests.integration.spark.logs import EventLog
from tests.servers import RealServer

# Tests are short: code that is compiled once and fast wins over code that runs fast.
QUICK_START = "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"


@pytest.fixture(scope="session", autouse=True)
def quick_start() -> Iterator[None]:
    """For Spark in this process and in those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", QUICK_START)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session("tests")
    yield session
    session.stop()


@pytest.fixture
def redis_client(redis_server: RealServer) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client


@pytest.fixture
def event_log(redis_server: RealServer, redis_client: redis.Redis) -> EventLog:
    """Empty logs of four shards with keys of their own."""
    return EventLog(redis_server.url, redis_client, f"test-{secrets.token_hex(6)}")
