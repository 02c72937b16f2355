"""Alert rules and the Grafana dashboard: every metric and label that they name is exported."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from relay.telemetry.metrics import Metrics
from workers.metrics import WorkerMetrics, of_store

ROOT = Path(__file__).parents[3]
RULES = yaml.safe_load((ROOT / "deploy/prometheus-rules.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
OF_PROMETHEUS = {"up": {"job", "instance"}}
OF_EVERY_TARGET = {"job", "instance"}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    drawn = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [rule["expr"] for rule in RULES] + drawn


def exported() -> dict[str, dict[str, set[str]]]:
    """By the name of a sample: its labels, and the values that they have from the start."""
    metrics, workers = Metrics("i-1"), WorkerMetrics("w-1", ["sweeper"])
    metrics.answered("GET", "/healthz", 200, 0.1)
    workers.went_round("sweeper", 1, 0.1)
    names: dict[str, dict[str, set[str]]] = {}
    families = [*metrics._registry.collect(), *workers._registry.collect(), *of_store([])]
    for family in families:
        suffix = "_total" if family.type == "counter" else ""
        names.setdefault(family.name + suffix, {})
        for sample in family.samples:
            labels = names.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    for name in ("relay_queue_depth", "relay_queue_oldest_seconds", "relay_mailboxes"):
        names[name].setdefault("shard", set())
    return names


def selectors(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Every metric in an expression, with the labels that it is chosen by."""
    bare = re.sub(r'"[^"]*"', lambda found: found.group().replace("{", "").replace("}", ""), expression)
    for name, labels in re.findall(r"\b((?:relay|process)_\w+|up)\b(?:\{([^}]*)\})?", bare):
        yield name, dict(re.findall(r'(\w+)=~?"([^"]*)"', labels))


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_and_label_is_exported(expression: str) -> None:
    known = exported()
    found = list(selectors(expression))

    assert found
    for name, chosen in found:
        assert name in known or name in OF_PROMETHEUS, name
        for label, value in chosen.items():
            assert label in known.get(name, {}) or label in OF_EVERY_TARGET, (name, label)
            if label not in OF_EVERY_TARGET:
                assert set(value.split("|")) <= known[name][label], (name, label, value)


@pytest.mark.parametrize("expression", expressions())
def test_what_is_added_up_by_a_label_has_it(expression: str) -> None:
    (names,) = {tuple(name for name, _ in selectors(expression))}
    for label in re.findall(r"by \((\w+)\)", expression):
        labels = set().union(*(exported().get(name, {}).keys() for name in names))
        assert label in labels or label in OF_EVERY_TARGET, (label, names)


@pytest.mark.parametrize("expression", expressions())
def test_brackets_are_closed(expression: str) -> None:
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    names = [rule["alert"] for rule in RULES]

    assert len(names) == len(set(names))
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "action"}


def test_every_alert_is_explained_to_operators() -> None:
    page = (ROOT / "docs/operations.md").read_text()

    assert [rule["alert"] for rule in RULES if f"`{rule['alert']}`" not in page] == []


def test_panels_have_places_and_numbers_of_their_own() -> None:
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]

    assert len(set(numbers)) == len(numbers)
    assert len(set(places)) == len(places)
    assert all(panel["targets"] and panel["title"] for panel in panels())
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels())


def test_compose_gives_prometheus_the_rules() -> None:
    configured = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())
    mounted = (ROOT / "docker-compose.yml").read_text()

    (file,) = configured["rule_files"]
    assert f"./deploy/{Path(file).name}:{file}:ro" in mounted
