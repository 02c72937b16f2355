"""The image: what can be said of it without building it. tests/system/compose/run.sh builds and runs it."""

import re
import tomllib

import yaml

from relay import settings
from relay.settings import Settings
from tests.integration.deploy import compose
from tests.integration.deploy.programs import ROOT, needs, run

DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", "")  # a line for each instruction


@needs("hadolint")
def test_hadolint_finds_nothing_wrong() -> None:
    checked = run("hadolint", "Dockerfile")

    assert checked.returncode == 0, checked.stdout


def test_packages_come_from_the_locks_and_with_their_hashes() -> None:
    installs = re.findall(r"pip install (.*)$", DOCKERFILE, re.MULTILINE)

    assert all("--require-hashes" in one or one.endswith("--no-deps --no-build-isolation .") for one in installs)
    assert {lock for one in installs for lock in re.findall(r"-r (\S+)", one)} == {
        "requirements.lock",
        "requirements-spark.lock",
    }


def test_the_relay_is_the_first_process_and_nobody_in_particular() -> None:
    assert re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE) == ['["relay"]']
    for stage in DOCKERFILE.split("\nFROM ")[1:]:
        assert re.findall(r"^USER (.*)$", stage, re.MULTILINE)[-1:] in ([], ["10001:10001"])


def test_the_settings_of_the_image_are_settings_of_the_relay() -> None:
    chosen = settings.load(dict(re.findall(r"\b(RELAY_\w+)=(\S+)", DOCKERFILE)))

    assert (chosen.host, chosen.log_format) == ("0.0.0.0", "json")
    assert f"EXPOSE {Settings().port}" in DOCKERFILE


def test_whatever_is_copied_is_let_in() -> None:
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }
    ignored = (ROOT / ".dockerignore").read_text()

    let_in = {name.replace("*", "") for name in re.findall(r"^!(\S+)$", ignored, re.MULTILINE)}

    assert {re.sub("requirements.*[.]lock", "requirements.lock", source) for source in copied} == let_in
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_every_target_that_compose_builds_exists() -> None:
    targets = set(re.findall(r"^FROM .* AS (\S+)$", DOCKERFILE, re.MULTILINE))

    built = set(re.findall(r"target: (\w+)", compose.FILE.read_text()))

    assert built == {"relay", "spark"}
    assert built <= targets
    assert DOCKERFILE.rindex("AS relay") > DOCKERFILE.rindex("AS spark")  # the one that is built without being named


def test_every_file_names_the_same_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((ROOT / "helm/Chart.yaml").read_text())

    in_compose = set(re.findall(r"image: agent-relay[a-z-]*:(\S+)", compose.FILE.read_text()))

    assert {chart["version"], chart["appVersion"], *in_compose} == {version}


def test_compose_and_the_chart_run_the_same_server() -> None:
    values = yaml.safe_load((ROOT / "helm/values.yaml").read_text())

    assert f"image: {values['redis']['image']}\n" in compose.FILE.read_text()
