"""The rendered chart, as tests ask about it."""

import base64
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

from tests.integration.deploy.programs import ROOT, run

CHART = ROOT / "helm"
VARIATIONS = sorted(path.name.removesuffix("-values.yaml") for path in CHART.glob("ci/*-values.yaml"))

Doc = dict[str, Any]


@cache
def manifests(variation: str) -> tuple[Doc, ...]:
    """Every document that the chart makes with the values of a variation."""
    rendered = run("helm", "template", "demo", CHART, "--values", CHART / f"ci/{variation}-values.yaml")
    assert rendered.returncode == 0, rendered.stderr
    return tuple(doc for doc in yaml.safe_load_all(rendered.stdout) if doc)


def of_kind(variation: str, kind: str) -> list[Doc]:
    return [doc for doc in manifests(variation) if doc["kind"] == kind]


def the(variation: str, kind: str, role: str = "relay") -> Doc:
    """The only document of this kind and role."""
    (found,) = [doc for doc in of_kind(variation, kind) if doc["metadata"]["labels"][ROLE] == role]
    return found


def pod_templates(variation: str) -> Iterator[Doc]:
    for doc in manifests(variation):
        if doc["kind"] in ("Deployment", "StatefulSet"):
            yield doc["spec"]["template"]
        if doc["kind"] == "CronJob":
            yield doc["spec"]["jobTemplate"]["spec"]["template"]


def containers(variation: str) -> list[Doc]:
    return [container for pod in pod_templates(variation) for container in pod["spec"]["containers"]]


def environment(container: Doc, secret: dict[str, str]) -> dict[str, str]:
    """What the process will see."""
    seen = {variable["name"]: _value(variable, secret) for variable in container["env"]}
    return {name: value for name, value in seen.items() if value is not None}


def _value(variable: Doc, secret: dict[str, str]) -> str | None:
    """None: a key that the Secret may lack, and does."""
    if "value" in variable:
        return str(variable["value"])
    reference = variable["valueFrom"]["secretKeyRef"]
    return secret.get(reference["key"]) if reference.get("optional") else secret[reference["key"]]


def secret_of(variation: str) -> dict[str, str]:
    """The content of the Secret that the chart makes, or an example of the one that it expects."""
    made = of_kind(variation, "Secret")
    example = {"token-secret": "t" * 48, "metrics-token": "m" * 40, "redis-url": "redis+sentinel://s:26379/main"}
    return made[0]["stringData"] if made else example


def encoded(secret: dict[str, str]) -> dict[str, str]:
    """As the API of Kubernetes gives it."""
    return {name: base64.b64encode(value.encode()).decode() for name, value in secret.items()}


ROLE = "app.kubernetes.io/component"
