"""docker-compose.yml: valid, whole, confined, and understood by the relay."""

import asyncio
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from relay import settings
from relay.auth import Tokens
from relay.cli.up.embedded import SERVER_OPTIONS, server_program
from relay.cli.up.lifeline import Child
from relay.settings import Settings
from relay.store.redis.servers.connect import home_at
from relay.store.redis.servers.topology import Topology
from relay.store.store import Store, open_store
from tests.integration.deploy import chart
from tests.integration.deploy.compose import FILE, Doc, environment, load, made_env, seconds, server_options, size
from tests.integration.deploy.programs import ROOT, needs, run
from tests.servers import free_port

OURS = ("relay", "workers", "archive")
ONCE = ("redis-join",)  # services that end when they are done
NODES = [f"redis-{number}" for number in range(1, 7)]


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return made_env(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def compose(environ: dict[str, str]) -> Doc:
    return load(environ)


@pytest.fixture(scope="module")
def services(compose: Doc) -> dict[str, Doc]:
    return dict(compose["services"])


def test_the_file_keeps_to_the_specification() -> None:
    checked = run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", FILE)

    assert checked.returncode == 0, checked.stdout


def test_make_env_makes_what_the_file_needs_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    needed = set(re.findall(r"\$\{(\w+):\?", FILE.read_text()))

    made = made_env(tmp_path)

    assert made.keys() == needed
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in made.values())
    assert len(set(made.values())) == len(made)
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600


def test_make_env_never_replaces_what_is_there(tmp_path: Path) -> None:
    before = made_env(tmp_path)

    again = subprocess.run([tmp_path / "deploy/make-env"], capture_output=True, text=True, check=False)

    assert again.returncode != 0
    assert "exists" in again.stderr
    assert (tmp_path / ".env").read_text() == "".join(f"{name}={value}\n" for name, value in before.items())


def test_secrets_stay_out_of_the_repository_and_the_image() -> None:
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()
    assert "!.env" not in (ROOT / ".dockerignore").read_text().splitlines()


def test_whatever_a_service_names_exists(compose: Doc, services: dict[str, Doc]) -> None:
    for name, service in services.items():
        assert set(service.get("depends_on", [])) <= services.keys(), name
        assert set(service.get("secrets", [])) <= compose["secrets"].keys(), name
        for source in (volume.split(":")[0] for volume in service.get("volumes", [])):
            assert (ROOT / source).is_file() if source.startswith(".") else source in compose["volumes"], name


def test_whatever_is_declared_is_used(compose: Doc, services: dict[str, Doc]) -> None:
    volumes = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    secrets = {secret for service in services.values() for secret in service.get("secrets", [])}

    assert compose["volumes"].keys() <= volumes
    assert compose["secrets"].keys() == secrets


def test_nothing_that_always_runs_needs_what_only_a_profile_starts(services: dict[str, Doc]) -> None:
    for service in services.values():
        for needed in service.get("depends_on", []):
            assert set(services[needed].get("profiles", [])) <= set(service.get("profiles", []))


def test_every_service_has_a_fixed_image_and_limits(services: dict[str, Doc]) -> None:
    for name, service in services.items():
        assert re.search(r":v?\d[\w.-]*(@sha256:[0-9a-f]{64})?$", service["image"]), name
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}, name
        assert service["restart"] == ("on-failure" if name in ONCE else "unless-stopped"), name


@pytest.mark.parametrize("name", [*OURS, "balancer"])
def test_a_service_that_meets_strangers_is_confined(services: dict[str, Doc], name: str) -> None:
    service = services[name]

    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_only_this_machine_can_connect_unless_told_otherwise(services: dict[str, Doc], environ: dict[str, str]) -> None:
    published = {port for service in services.values() for port in service.get("ports", [])}

    assert {port.split(":")[0] for port in published} == {"127.0.0.1"}
    assert load(environ | {"LISTEN": "0.0.0.0:80"})["services"]["balancer"]["ports"] == ["0.0.0.0:80:8080"]


@pytest.mark.parametrize("name", OURS)
def test_the_relay_understands_its_environment(services: dict[str, Doc], name: str) -> None:
    chosen = settings.load(environment(services[name]))

    assert chosen.redis_url is not None
    assert "@redis:6379" in chosen.redis_url


def test_instances_and_workers_agree(services: dict[str, Doc]) -> None:
    instance, worker = (environment(services[name]) for name in ("relay", "workers"))

    assert worker.pop("RELAY_METRICS_PORT") == "9464"
    assert worker.items() <= instance.items()
    assert Tokens(settings.load(instance))


@pytest.mark.parametrize("name", ["relay", "workers"])
def test_no_tenant_is_open_unless_it_is_named(services: dict[str, Doc], environ: dict[str, str], name: str) -> None:
    named = load(environ | {"OPEN_TENANTS": "acme,beta"})["services"][name]

    assert environment(services[name])["RELAY_OPEN_TENANTS"] == ""
    assert settings.load(environment(named)).open_tenants == ("acme", "beta")


def test_a_stopping_instance_has_the_time_to_drain(services: dict[str, Doc]) -> None:
    drain_s = settings.load(environment(services["relay"])).drain_s

    assert seconds(services["relay"]["stop_grace_period"]) >= drain_s + 5


@needs("helm")
def test_the_server_is_as_durable_as_the_embedded_one_everywhere(services: dict[str, Doc]) -> None:
    (in_cluster,) = [one for one in chart.containers("minimal") if one["name"] == "redis"]

    for words in (services["redis"]["command"], in_cluster["args"]):
        assert SERVER_OPTIONS.items() <= server_options(words).items()


def test_the_nodes_of_the_cluster_are_as_durable_and_have_as_much_room(services: dict[str, Doc]) -> None:
    for name in NODES:
        options = server_options(services[name]["command"])
        assert SERVER_OPTIONS.items() <= options.items(), name
        assert 2 * size(options["maxmemory"]) <= size(services[name]["deploy"]["resources"]["limits"]["memory"]), name


def test_every_node_keeps_its_address_and_is_told_to_the_others(services: dict[str, Doc]) -> None:
    addresses = [services[name]["networks"]["cluster"]["ipv4_address"] for name in NODES]

    assert len(set(addresses)) == len({services[name]["volumes"][0] for name in NODES}) == len(NODES)
    assert services["redis-join"]["environment"]["NODES"].split() == [f"{address}:6379" for address in addresses]
    assert services["redis-join"]["depends_on"] == NODES


@pytest.mark.parametrize("name", OURS)
def test_the_relay_finds_the_cluster_when_it_is_told_to(environ: dict[str, str], name: str) -> None:
    hosts = ",".join(f"{node}:6379" for node in NODES[:3])
    service = load(environ | {"REDIS_KIND": "+cluster", "REDIS_HOSTS": hosts})["services"][name]

    topology = home_at(str(settings.load(environment(service)).redis_url))

    assert isinstance(topology, Topology)
    assert [seed.address for seed in topology._seeds] == [(node, 6379) for node in NODES[:3]]
    assert "cluster" in service["networks"]


@needs("redis-cli")
async def test_six_servers_started_like_that_become_a_cluster_that_a_relay_can_use(
    services: dict[str, Doc], environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/valkey-server").symlink_to(server_program())
    (tmp_path / "bin/valkey-cli").symlink_to(str(shutil.which("redis-cli")))
    password, join = environ["REDIS_PASSWORD"], services["redis-join"]["command"]
    with ExitStack() as stack:
        ports = []
        for name in NODES:
            (tmp_path / name).mkdir()
            words = [*services[name]["command"], "--cluster-port", str(free_port())]
            ports.append(stack.enter_context(_started(words, password, tmp_path / name, tmp_path / "bin"))[0])
        nodes = [f"127.0.0.1:{port}" for port in ports]
        seen = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "REDISCLI_AUTH": password, "NODES": " ".join(nodes)}
        for _ in range(2):  # the second time it finds a Cluster and leaves it alone
            joined = [word.replace("$$", "$") for word in join]
            await asyncio.to_thread(subprocess.run, joined, env=seen, check=True, capture_output=True, timeout=60)
        chosen = Settings(durability="replica", shards=6, open_tenants=("*",))
        async with open_store(chosen, f"redis+cluster://:{password}@{nodes[0]}") as store:
            async with asyncio.timeout(30):
                while await _is_unsafe(store):  # noqa: ASYNC110 - nobody else tells
                    await asyncio.sleep(0.1)
            assert store.level() == "replica"
            assert len(store.pipeline.masters.all) == 3


async def _is_unsafe(store: Store) -> bool:
    await store.inspect()
    return store.safety is None or store.safety.reason is not None


@needs("helm")
def test_the_server_has_room_to_rewrite_its_log_everywhere(services: dict[str, Doc]) -> None:
    (in_cluster,) = [one for one in chart.containers("minimal") if one["name"] == "redis"]
    places = (
        (services["redis"]["command"], services["redis"]["deploy"]["resources"]["limits"]["memory"]),
        (in_cluster["args"], in_cluster["resources"]["limits"]["memory"]),
    )

    for words, limit in places:
        assert 2 * size(server_options(words)["maxmemory"]) <= size(limit)


@needs("helm")
def test_the_servers_password_is_in_no_command_line_and_still_guards_it(
    services: dict[str, Doc], environ: dict[str, str], tmp_path: Path
) -> None:
    (in_cluster,) = [one for one in chart.containers("minimal") if one["name"] == "redis"]
    (tmp_path / "bin").mkdir()
    seen = tmp_path / "words"
    program = tmp_path / "bin/valkey-server"  # which soon hides its words: they are noted as it starts
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{seen}\nexec {server_program()} "$@"\n')
    program.chmod(0o755)
    for words in (services["redis"]["command"], in_cluster["command"] + in_cluster["args"]):
        with _started(words, environ["REDIS_PASSWORD"], tmp_path, tmp_path / "bin") as (port, _):
            with redis.Redis(port=port, retry=None) as stranger, pytest.raises(redis.AuthenticationError):
                stranger.ping()
            assert "--maxmemory" in seen.read_text().split()
            assert environ["REDIS_PASSWORD"] not in seen.read_text()


@contextmanager
def _started(words: list[str], password: str, folder: Path, programs: Path) -> Iterator[tuple[int, int]]:
    """Port and process of a server that runs with these words of a manifest and answers."""
    port = free_port()
    words = [word.replace("$$", "$") for word in words]
    words[words.index("--dir") + 1] = str(folder)
    process = Child(
        [*words, "--port", str(port), "--bind", "127.0.0.1", "--loglevel", "warning"],
        env={"PATH": f"{programs}:/usr/bin:/bin", "REDISCLI_AUTH": password},
    )
    try:
        with redis.Redis(port=port, password=password, retry=Retry(ConstantBackoff(0.05), 200)) as friend:
            assert friend.ping()
        yield port, process.pid
    finally:
        process.kill()  # what they hold is thrown away, and a master would wait for its replicas first
        process.wait()


def test_the_balancer_waits_longer_than_the_relay() -> None:
    text = (ROOT / "deploy/haproxy.cfg").read_text()

    waits_s = {kind: seconds(span) for kind, span in re.findall(r"timeout (\S+) (\w+)", text)}

    assert waits_s["tunnel"] > Settings().silent_after_s
    assert min(waits_s["client"], waits_s["server"]) > 60  # the longest wait_s
    assert f"relay:{Settings().port}" in text
