"""The chart: every variation is valid, safe, and means something to the relay."""

import json
import re
from dataclasses import Field, fields
from typing import Any, get_type_hints

import kubernetes_validate
import pytest

from relay import settings
from relay.auth import Tokens
from relay.settings import Settings
from tests.integration.deploy.chart import (
    CHART,
    VARIATIONS,
    containers,
    environment,
    manifests,
    of_kind,
    pod_templates,
    secret_of,
    the,
)
from tests.integration.deploy.programs import needs, run

pytestmark = needs("helm")

KUBERNETES = ("1.25", "1.37")  # the oldest that the chart allows, the newest that the packages know
OUTSIDE_KINDS = {"ServiceMonitor"}  # of operators, which Kubernetes itself knows nothing about
OF_THE_CHART = {"redis_url", "host", "port", "token_secret", "metrics_token", "data_dir"}  # and not of its users


@pytest.mark.parametrize("variation", VARIATIONS)
def test_helm_finds_nothing_wrong(variation: str) -> None:
    linted = run("helm", "lint", "--strict", CHART, "--values", CHART / f"ci/{variation}-values.yaml")

    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("variation", VARIATIONS)
def test_kubernetes_knows_every_field(variation: str, version: str) -> None:
    for doc in manifests(variation):
        if doc["kind"] not in OUTSIDE_KINDS:
            kubernetes_validate.validate(doc, version, strict=True)


@pytest.mark.parametrize("variation", VARIATIONS)
def test_the_relay_understands_its_environment(variation: str) -> None:
    (relay,) = [one for one in containers(variation) if one["name"] == "relay"]

    chosen = settings.load(environment(relay, secret_of(variation)))

    assert Tokens(chosen)
    assert chosen.redis_url is not None
    assert chosen.metrics_token is not None


@pytest.mark.parametrize("variation", VARIATIONS)
def test_workers_have_the_settings_of_the_instances_and_no_more_secrets_than_they_need(variation: str) -> None:
    seen = {one["name"]: environment(one, secret_of(variation)) for one in containers(variation)}

    assert seen["workers"].items() <= seen["relay"].items()
    assert seen["relay"].keys() - seen["workers"].keys() == {"RELAY_TOKEN_SECRET", "RELAY_METRICS_TOKEN"}


def test_values_reach_the_relay_unchanged() -> None:
    (relay,) = [one for one in containers("everything") if one["name"] == "relay"]

    chosen = settings.load(environment(relay, secret_of("everything")))

    assert (chosen.mailbox_max_bytes, chosen.max_buffer_bytes) == (67_108_864, 2**40)
    assert (chosen.recheck_s, chosen.drain_s) == (0.5, 0.5)
    assert chosen.open_tenants == ("acme", "beta")
    assert chosen.log_addresses == "hashed"


@pytest.mark.parametrize("variation", VARIATIONS)
def test_a_pod_has_the_time_to_drain(variation: str) -> None:
    pod = the(variation, "Deployment")["spec"]["template"]["spec"]
    (relay,) = pod["containers"]
    pause_s = int(relay["lifecycle"]["preStop"]["exec"]["command"][1])

    drain_s = settings.load(environment(relay, secret_of(variation))).drain_s

    assert pod["terminationGracePeriodSeconds"] >= pause_s + drain_s + 5


@pytest.mark.parametrize("variation", VARIATIONS)
def test_every_pod_is_confined(variation: str) -> None:
    for pod in pod_templates(variation):
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["spec"]["automountServiceAccountToken"] is False
    for container in containers(variation):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert re.search(r":[^:/]+$", container["image"])
        assert not container["image"].endswith(":latest")


@pytest.mark.parametrize("variation", VARIATIONS)
def test_no_pod_gets_variables_that_would_be_taken_for_settings(variation: str) -> None:
    assert {pod["spec"]["enableServiceLinks"] for pod in pod_templates(variation)} == {False}


@pytest.mark.parametrize("variation", VARIATIONS)
def test_every_selector_finds_pods(variation: str) -> None:
    pods = [pod["metadata"]["labels"].items() for pod in pod_templates(variation)]

    for doc in manifests(variation):
        for labels in _selectors(doc.get("spec", {})):
            assert any(labels.items() <= pod for pod in pods), doc["metadata"]["name"]


def _selectors(spec: dict[str, Any]) -> list[dict[str, str]]:
    of_policy = [peer["podSelector"] for rule in _rules(spec) for peer in rule if "podSelector" in peer]
    found = [spec.get("selector", {}), spec.get("podSelector", {}), *of_policy]
    return [one.get("matchLabels", one) for one in found if one]


def _rules(spec: dict[str, Any]) -> list[list[dict[str, Any]]]:
    ingress, egress = spec.get("ingress", []), spec.get("egress", [])
    return [rule.get("from", []) for rule in ingress] + [rule.get("to", []) for rule in egress]


@pytest.mark.parametrize("variation", VARIATIONS)
def test_secrets_stand_in_the_secret_alone(variation: str) -> None:
    hidden = secret_of(variation).values()

    elsewhere = json.dumps([doc for doc in manifests(variation) if doc["kind"] != "Secret"])

    assert [value for value in hidden if value in elsewhere] == []


def test_the_chart_makes_every_secret_that_its_pods_ask_for() -> None:
    asked = {
        (variable["valueFrom"]["secretKeyRef"]["name"], variable["valueFrom"]["secretKeyRef"]["key"])
        for container in containers("everything")
        for variable in container["env"]
        if "valueFrom" in variable
    }
    (made,) = of_kind("everything", "Secret")

    assert asked == {(made["metadata"]["name"], key) for key in made["stringData"]}


def test_the_service_monitor_brings_the_token_that_the_relay_expects() -> None:
    (endpoint,) = the("everything", "ServiceMonitor")["spec"]["endpoints"]
    (relay,) = [one for one in containers("everything") if one["name"] == "relay"]
    (expected,) = [one["valueFrom"]["secretKeyRef"] for one in relay["env"] if one["name"] == "RELAY_METRICS_TOKEN"]

    assert endpoint["authorization"]["credentials"] == expected
    assert [port["name"] for port in the("everything", "Service")["spec"]["ports"]] == [endpoint["port"]]


def test_every_volume_claim_of_a_pod_is_made() -> None:
    claims = {doc["metadata"]["name"] for doc in of_kind("everything", "PersistentVolumeClaim")}
    wanted = {
        volume["persistentVolumeClaim"]["claimName"]
        for pod in pod_templates("everything")
        for volume in pod["spec"].get("volumes", [])
        if "persistentVolumeClaim" in volume
    }

    assert wanted == claims


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("settings.drian_s=30", "drian_s is not allowed"),
        ("settings.port=9000", "port is not allowed"),
        ("settings.shards=0", "settings.shards"),
        ("redis.url=http://example.com", "redis.url"),
        ("relay.replica=3", "replica is not allowed"),
        ("redis.enabled=false", "redis.url or secrets.existing is needed"),
    ],
)
def test_a_wrong_value_is_refused_by_name(value: str, complaint: str) -> None:
    refused = run("helm", "template", "demo", CHART, "--set", value)

    assert refused.returncode != 0
    assert complaint in refused.stderr


def test_the_schema_allows_what_the_relay_allows() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["settings"]["properties"]

    assert schema == {spec.name: _as_schema(spec) for spec in fields(Settings) if spec.name not in OF_THE_CHART}


def _as_schema(spec: Field[Any]) -> dict[str, Any]:
    kind = get_type_hints(Settings)[spec.name]
    if kind == tuple[str, ...]:
        return {"type": "array", "items": {"type": "string"}}
    if "choices" in spec.metadata:
        return {"enum": list(spec.metadata["choices"])}
    if "low" in spec.metadata:
        number = "integer" if kind is int else "number"
        return {"type": number, "minimum": spec.metadata["low"], "maximum": spec.metadata["high"]}
    return {"type": "string"}


def test_a_file_of_the_chart_is_named_for_its_role_and_kind() -> None:
    for variation in VARIATIONS:
        for doc in manifests(variation):
            role = doc["metadata"]["labels"]["app.kubernetes.io/component"]
            assert (CHART / f"templates/{role}-{doc['kind'].lower()}.yaml").exists()


def test_the_values_can_be_read_in_one_go() -> None:
    assert len((CHART / "values.yaml").read_text().splitlines()) < 150
