"""Facts that are written twice stay the same."""

import re
from dataclasses import fields
from pathlib import Path

import click
import pytest

from relay.cli import main
from relay.metrics import Metrics
from relay.settings import Settings, env_name
from spark.schemas import EVENTS, MAILBOXES

ROOT = Path(__file__).parents[2]


def shown(default: object) -> str:
    if default is None or default == ():
        return "–"
    return f"`{','.join(default) if isinstance(default, tuple) else default}`"


def test_every_setting_is_documented_with_its_default_and_meaning():
    rows = re.findall(
        r"^\| `(RELAY_\w+)` \| (.+?) \| .*? \| (.+) \|$", (ROOT / "docs/settings.md").read_text(), re.MULTILINE
    )

    documented = {name: (default, meaning) for name, default, meaning in rows}

    assert documented == {
        env_name(field.name): (shown(field.default), field.metadata["doc"]) for field in fields(Settings)
    }


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{name}.md" for name in ("architecture", "deploy", "pipeline", "protocol"))]
)
def test_every_link_leads_somewhere(page):
    path = ROOT / page

    links = re.findall(r"\]\(([^)#:]+)\)", path.read_text())

    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_command_that_the_readme_names_exists():
    named = set(re.findall(r"`relay (\w+)", (ROOT / "README.md").read_text()))
    named |= set(re.findall(r"^\.venv/bin/relay (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))

    assert isinstance(main, click.Group)
    assert named - set(main.commands) == set()


def test_every_column_of_the_tables_is_in_the_documentation_of_the_pipeline():
    page = (ROOT / "docs/pipeline.md").read_text()

    assert [name for name in (*EVENTS.names, *MAILBOXES.names) if f"`{name}`" not in page] == []


def test_every_key_is_in_the_table_of_the_architecture():
    table = (ROOT / "docs/architecture.md").read_text()

    for name in re.findall(r'tag\(.*?\) \+ "(\w+)"|tag\(.*?\)\}(\w+):', (ROOT / "relay/store/keys.py").read_text()):
        word = name[0] or name[1]
        assert word == "wake" or word == "topics" or re.search(rf"[`:]{word}[`:]", table), word


def test_every_metric_is_in_the_list_for_operators():
    page = (ROOT / "docs/deploy.md").read_text()

    for family in Metrics().collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        assert re.search(rf"`{name}[`{{]", page), name
