"""The chart: every variation is valid, safe, and means something to the relay."""

import json
import re
from dataclasses import Field, fields
from typing import Any, get_type_hints

import kubernetes_validate
import pytest
import yaml

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
OUTSIDE_KINDS = {"ServiceMonitor", "PodMonitor"}  # of operators, which Kubernetes itself knows nothing about
OF_THE_CHART = {
    *("redis_url", "host", "port", "metrics_port", "data_dir"),
    *("token_secret", "token_secret_before", "metrics_token"),
}


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

    assert seen["workers"].pop("RELAY_METRICS_PORT") == "9464"
    assert seen["workers"].items() <= seen["relay"].items()
    assert seen["relay"].keys() - seen["workers"].keys() == {"RELAY_TOKEN_SECRET"}


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


def test_an_image_is_named_by_its_digest_where_there_is_one() -> None:
    images = {one["name"]: one["image"] for one in containers("everything")}

    assert re.fullmatch(r"registry.example.com/team/agent-relay@sha256:[0-9a-f]{64}", images["relay"])
    assert images["workers"] == images["relay"]
    assert images["archive"] == "registry.example.com/team/agent-relay-spark:0.1.0"


def test_an_ingress_speaks_tls_unless_told_otherwise() -> None:
    rendered = run("helm", "template", "demo", CHART, "--set", "ingress.enabled=true").stdout
    (ingress,) = [doc for doc in yaml.safe_load_all(rendered) if doc and doc["kind"] == "Ingress"]

    assert [one["hosts"] for one in ingress["spec"]["tls"]] == [[rule["host"] for rule in ingress["spec"]["rules"]]]
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/force-ssl-redirect"] == "true"


def test_pods_may_reach_a_server_of_yours_and_its_sentinels() -> None:
    for role in ("relay", "workers"):
        rules = the("high-availability", "NetworkPolicy", role)["spec"]["egress"]

        assert {6_379, 26_379} <= {port["port"] for rule in rules for port in rule["ports"]}


@pytest.mark.parametrize("role", ["relay", "workers"])
def test_high_availability_survives_the_loss_of_a_node(role: str) -> None:
    spec = the("high-availability", "Deployment", role)["spec"]["template"]["spec"]

    spread = {one["topologyKey"]: one["whenUnsatisfiable"] for one in spec["topologySpreadConstraints"]}
    assert spread == {"topology.kubernetes.io/zone": "DoNotSchedule", "kubernetes.io/hostname": "DoNotSchedule"}


def test_high_availability_promises_replicas_and_has_more_than_one_of_everything() -> None:
    variation = "high-availability"
    pods = {one["name"]: environment(one, secret_of(variation)) for one in containers(variation)}

    assert {pods[name]["RELAY_DURABILITY"] for name in ("relay", "workers")} == {"replica"}
    assert "redis" not in pods, "one server with a volume has no replica"
    assert the(variation, "HorizontalPodAutoscaler")["spec"]["minReplicas"] >= 2
    assert the(variation, "Deployment", "workers")["spec"]["replicas"] >= 2


def test_the_default_opens_no_tenant_and_says_so() -> None:
    (relay,) = [one for one in containers("minimal") if one["name"] == "relay"]

    assert environment(relay, secret_of("minimal"))["RELAY_OPEN_TENANTS"] == ""


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
        if "valueFrom" in variable and not variable["valueFrom"]["secretKeyRef"].get("optional")
    }
    (made,) = of_kind("everything", "Secret")

    assert asked == {(made["metadata"]["name"], key) for key in made["stringData"]}


def test_the_service_monitor_brings_the_token_that_the_relay_expects() -> None:
    (endpoint,) = the("everything", "ServiceMonitor")["spec"]["endpoints"]
    (relay,) = [one for one in containers("everything") if one["name"] == "relay"]
    (expected,) = [one["valueFrom"]["secretKeyRef"] for one in relay["env"] if one["name"] == "RELAY_METRICS_TOKEN"]

    assert endpoint["authorization"]["credentials"] == expected
    assert [port["name"] for port in the("everything", "Service")["spec"]["ports"]] == [endpoint["port"]]


def test_the_pod_monitor_finds_the_port_of_the_workers_and_brings_their_token() -> None:
    (monitor,) = of_kind("everything", "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (workers,) = [one for one in containers("everything") if one["name"] == "workers"]
    (expected,) = [one["valueFrom"]["secretKeyRef"] for one in workers["env"] if one["name"] == "RELAY_METRICS_TOKEN"]

    assert endpoint["authorization"]["credentials"] == expected
    assert workers["ports"] == [{"name": endpoint["port"], "containerPort": 9464}]


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
    return {"type": "boolean" if kind is bool else "string"}


def test_a_file_of_the_chart_is_named_for_its_role_and_kind() -> None:
    for variation in VARIATIONS:
        for doc in manifests(variation):
            role = doc["metadata"]["labels"]["app.kubernetes.io/component"]
            assert (CHART / f"templates/{role}-{doc['kind'].lower()}.yaml").exists()


def test_the_values_can_be_read_in_one_go() -> None:
    assert len((CHART / "values.yaml").read_text().splitlines()) < 150
