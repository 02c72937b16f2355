"""docker-compose.yml: valid, whole, confined, and understood by the relay."""

import re
import stat
import subprocess
from pathlib import Path

import pytest

from relay import settings
from relay.auth import Tokens
from relay.embedded import SERVER_OPTIONS
from relay.settings import Settings
from tests.integration.deploy import chart
from tests.integration.deploy.compose import FILE, Doc, environment, load, made_env, seconds, server_options
from tests.integration.deploy.programs import ROOT, needs, run

OURS = ("relay", "workers", "archive")


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
        assert re.search(r":v?\d[\w.-]*$", service["image"]), name
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}, name
        assert service["restart"] == "unless-stopped", name


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

    assert worker.items() <= instance.items()
    assert Tokens(settings.load(instance))


def test_a_stopping_instance_has_the_time_to_drain(services: dict[str, Doc]) -> None:
    drain_s = settings.load(environment(services["relay"])).drain_s

    assert seconds(services["relay"]["stop_grace_period"]) >= drain_s + 5


@needs("helm")
def test_the_server_is_as_durable_as_the_embedded_one_everywhere(services: dict[str, Doc]) -> None:
    (in_cluster,) = [one for one in chart.containers("minimal") if one["name"] == "redis"]

    for words in (services["redis"]["command"], in_cluster["args"]):
        assert SERVER_OPTIONS.items() <= server_options(words).items()


def test_the_balancer_waits_longer_than_the_relay() -> None:
    text = (ROOT / "deploy/haproxy.cfg").read_text()

    waits_s = {kind: seconds(span) for kind, span in re.findall(r"timeout (\S+) (\w+)", text)}

    assert waits_s["tunnel"] > Settings().silent_after_s
    assert min(waits_s["client"], waits_s["server"]) > 60  # the longest wait_s
    assert f"relay:{Settings().port}" in text
