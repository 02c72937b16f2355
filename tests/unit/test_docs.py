"""Facts that are written twice stay the same."""

import ast
import re
from dataclasses import fields
from pathlib import Path

import click
import pytest
from prometheus_client.core import Metric

from relay.cli.main import main
from relay.settings import Settings, env_name
from relay.telemetry.metrics import Metrics
from spark.schemas import EVENTS, MAILBOXES
from workers.metrics import WorkerMetrics, of_store

ROOT = Path(__file__).parents[2]


def shown(default: object) -> str:
    if default is None or default == ():
        return "–"
    if isinstance(default, bool):
        return "`true`" if default else "`false`"
    return f"`{','.join(default) if isinstance(default, tuple) else default}`"


def test_every_setting_is_documented_with_its_default_and_meaning():
    rows = re.findall(
        r"^\| `(RELAY_\w+)` \| (.+?) \| .*? \| (.+) \|$", (ROOT / "docs/settings.md").read_text(), re.MULTILINE
    )

    documented = {name: (default, meaning) for name, default, meaning in rows}

    assert documented == {
        env_name(field.name): (shown(field.default), field.metadata["doc"]) for field in fields(Settings)
    }


PAGES = [
    str(path.relative_to(ROOT)) for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
] + ["bench/results.md", "tests/hostile/README.md"]
LONGEST_LINE = 120  # of prose; tables, headings and commands to copy are as long as they must be


def prose(text: str) -> list[str]:
    """The lines of a page that are neither in a block of code nor a row of a table."""
    outside = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return [line for line in outside.splitlines() if not line.lstrip().startswith("|")]


@pytest.mark.parametrize("page", PAGES)
def test_every_line_of_prose_is_short(page):
    assert [line for line in prose((ROOT / page).read_text()) if len(line) > LONGEST_LINE] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    path = ROOT / page

    links = re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", path.read_text())

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


def of_workers() -> list[Metric]:
    """Also what only the process that measures the store tells."""
    metrics = WorkerMetrics("", ["sweeper"])
    metrics.went_round("sweeper", 1, 0.1)
    return [*metrics.collect(), *of_store([])]


def test_every_metric_is_in_the_list_for_operators():
    page = (ROOT / "docs/deploy.md").read_text()

    for family in (*Metrics().collect(), *of_workers()):
        name = family.name + ("_total" if family.type == "counter" else "")
        assert re.search(rf"`{name}[`{{]", page), name


def test_every_module_of_hostile_clients_has_a_row():
    folder = ROOT / "tests/hostile"

    rows = re.findall(r"^\| `(test_\w+)` \|", (folder / "README.md").read_text(), re.MULTILINE)

    assert rows == sorted(path.stem for path in folder.glob("test_*.py"))


def functions() -> set[str]:
    """Every class, method and function of the relay, as `Class.method` or by its bare name."""
    names: set[str] = set()
    for path in (ROOT / "relay").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            if isinstance(node, ast.ClassDef):
                names |= {f"{node.name}.{part.name}" for part in node.body if hasattr(part, "name")}
    return names


def test_the_path_of_a_message_is_that_of_the_code():
    page = (ROOT / "docs/architecture.md").read_text()
    path = page[page.index("## The path of a message") : page.index("## The store")]

    named = set(re.findall(r"`([A-Z]\w+(?:\.\w+)?)`", path))

    assert named - functions() == set(), "renamed? docs/architecture.md follows"


def test_every_file_that_the_architecture_names_exists():
    page = (ROOT / "docs/architecture.md").read_text()

    named = re.findall(r"`((?:relay|workers|spark)/[\w/.]+)`", page)

    assert [name for name in named if not (ROOT / name).exists()] == []
