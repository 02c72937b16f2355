"""How the pipeline is started, and the parts of it that need neither Spark nor a server."""

import importlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from relay.cli.main import main as cli
from relay.cli.pipeline import java, spark_launcher
from relay.cli.pipeline import spark as commands
from relay.errors import ConfigurationError
from spark.__main__ import JOBS, clear_cause, main
from spark.errors import BadInput
from spark.sources.event_log import Extent, Mark, Range
from spark.sources.packing import packed, whole_logs
from spark.sources.store import StoreError, options_from_environ

A_FILE = "file:///a/b.parquet cannot be read"


def a_range(entries: int) -> Range:
    return Range(0, "-", "+", entries)


def a_log(entries: int, first_ms: int, last_ms: int) -> Extent:
    return Extent(Mark(f"{first_ms}-0", 1), Mark(f"{last_ms}-7", entries), 0, 1)


def a_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


# -- starting


def test_a_job_finds_python_java_and_the_store_in_its_environment() -> None:
    environ = spark_launcher.job_environ({"HOME": "/home/x", "JAVA_HOME": "/old"}, "redis://:secret@there", "/java")

    assert environ["HOME"] == "/home/x"
    assert environ["RELAY_REDIS_URL"] == "redis://:secret@there"
    assert environ["JAVA_HOME"] == "/java"
    assert environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert environ["PYSPARK_PYTHON"]


def test_a_java_home_that_is_too_old_is_not_passed_on() -> None:
    environ = spark_launcher.job_environ({"JAVA_HOME": "/old"}, None, None)

    assert "JAVA_HOME" not in environ


@pytest.mark.parametrize("job", JOBS)
def test_a_command_has_the_options_of_its_job(job: str) -> None:
    declared = {option.opts[0]: option.is_flag for option in commands.spark.commands[job].params}

    own = importlib.import_module(f"spark.jobs.{job}").parser()

    assert declared == {action.option_strings[0]: action.nargs == 0 for action in own._actions[1:]}  # the first: help


@pytest.mark.parametrize("job", JOBS)
def test_help_and_wrong_options_install_nothing(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "run_job", lambda *_: pytest.fail("started"))

    assert "--" in CliRunner().invoke(commands.spark, [job, "--help"]).stdout
    assert CliRunner().invoke(commands.spark, [job, "--no-such-option"]).exit_code == 2


def test_a_job_gets_the_options_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(commands, "run_job", lambda words, _: started.append(words))

    words = ["audit", "--archive", "A", "--until", "2026-05-02", "--offline", "--ttl-s", "60"]
    done = CliRunner().invoke(commands.spark, words, env={"RELAY_REDIS_URL": "redis://127.0.0.1:1"})

    assert done.exit_code == 0, done.output
    assert started == [["audit", "--archive", "A", "--until", "2026-05-02", "--offline", "--ttl-s", "60.0"]]


def test_packages_that_are_there_are_not_installed(tmp_path: Path) -> None:
    spark_launcher.install_packages(tmp_path / "none.lock", ("click",))


def test_the_lock_of_the_packages_is_where_the_launcher_looks() -> None:
    assert spark_launcher.LOCK.exists()


def test_missing_packages_without_a_lock_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no_such_package not installed, and none.lock is not"):
        spark_launcher.install_packages(tmp_path / "none.lock", ("click", "no_such_package"))


def test_packages_that_cannot_be_installed_are_a_clear_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "wrong.lock"
    lock.write_text("no-such-file-anywhere @ file:///no/such/file.whl --hash=sha256:00\n")

    with pytest.raises(ConfigurationError, match=r"the packages in wrong.lock could not be installed"):
        spark_launcher.install_packages(lock, ("no_such_package",))

    assert "Installing no_such_package from wrong.lock" in capfd.readouterr().err


def test_java_home_wins_when_it_is_new_enough(tmp_path: Path) -> None:
    home = a_java(tmp_path / "new", "21.0.1")

    assert java.java_home({"JAVA_HOME": str(home), "PATH": ""}) == str(home)


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    old, new = a_java(tmp_path / "old", "11.0.1"), a_java(tmp_path / "new", "17.0.15")

    assert java.java_home({"JAVA_HOME": str(old), "PATH": f"{new}/bin"}) is None


def test_without_any_java_the_packaged_one_is_wrapped(tmp_path: Path) -> None:
    home = java.java_home({"PATH": ""}, made_in=tmp_path)

    assert home == str(tmp_path / "relay-java")
    assert java._version(f"{home}/bin/java") >= java.OLDEST


def test_no_java_at_all_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged", lambda: None)

    with pytest.raises(ConfigurationError, match="Spark needs Java 17 or newer"):
        java.java_home({"PATH": ""})


OUT, ARCHIVE = ("--out", "out"), ("--archive", "archive")


@pytest.mark.parametrize("url", ["s3://bucket/x", "s3a://bucket/x", "file:///tmp/x", "hdfs:/x"])
@pytest.mark.parametrize(
    "words",
    [
        ("archive", "--out", "{url}"),
        ("dump", "--out", "{url}"),
        ("report", *OUT, "--archive", "{url}"),
        ("report", *ARCHIVE, "--out", "{url}"),
        ("audit", "--archive", "{url}"),
        ("audit", *ARCHIVE, "--mailboxes", "{url}"),
    ],
)
def test_a_url_is_no_folder_of_a_job(
    words: tuple[str, ...],
    url: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main([word.format(url=url) for word in words]) == 2

    told = capsys.readouterr().err
    assert told.startswith(f"Error: {url}: the scheme '{url.partition(':')[0]}' is not supported; name a folder")
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


REPLAY = ["spark", "replay", "--dry-run", "--from"]


def test_neither_is_it_one_of_a_replay() -> None:
    refused = CliRunner().invoke(cli, [*REPLAY, "s3://bucket/x"])

    assert refused.exit_code == 2
    assert "the scheme 's3' is not supported" in refused.stderr


def test_a_replay_without_a_whole_dump_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mailboxes").mkdir()
    unfinished = CliRunner().invoke(cli, [*REPLAY, str(tmp_path)])
    (tmp_path / "mailboxes" / "_SUCCESS").touch()
    (tmp_path / "mailboxes" / "part-0.parquet").write_text("no Parquet")
    unreadable = CliRunner().invoke(cli, [*REPLAY, str(tmp_path)])

    assert (unfinished.exit_code, unreadable.exit_code) == (2, 2)
    assert "holds no finished dump of mailboxes" in unfinished.stderr
    assert "part-0.parquet cannot be read" in unreadable.stderr


def test_a_replay_of_a_period_that_ends_before_it_begins_is_refused(tmp_path: Path) -> None:
    period = ["--since", "2026-05-02", "--until", "2026-05-01"]

    refused = CliRunner().invoke(cli, [*REPLAY, str(tmp_path), *period])

    assert refused.exit_code == 2
    assert "is not after --since" in refused.stderr


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (BadInput("no folder"), "no folder"),
        (RuntimeError("at x\nspark.sources.store.StoreError: wiped\nat y"), "wiped"),
        (RuntimeError("[FAILED_READ_FILE.NO_HINT] Error while reading file file:///a/b.parquet.  SQL"), A_FILE),
        (RuntimeError("anything else"), None),
    ],
)
def test_what_fails_for_a_known_reason_has_a_clear_cause(error: Exception, cause: str | None) -> None:
    assert clear_cause(error) == cause


def test_a_job_that_fails_for_another_reason_does_not_look_like_one_that_found_something(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spark.jobs.audit.main", lambda _: 1 // 0)

    assert main(["audit"]) == 2

    told = capsys.readouterr().err
    assert "ZeroDivisionError" in told
    assert told.endswith("Error: the audit failed\n")


@pytest.mark.parametrize("words", [[], ["no-such-job"]])
def test_an_unknown_job_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2

    assert "which job? There are archive, dump, report, audit" in capsys.readouterr().err


def test_without_a_store_a_job_says_what_to_set() -> None:
    with pytest.raises(StoreError, match="RELAY_REDIS_URL is not set"):
        options_from_environ({})


# -- packing


def test_ranges_are_packed_evenly_into_tasks() -> None:
    lots = packed([a_range(entries) for entries in (50, 30, 30, 20, 10)], tasks=2)

    assert sorted(sum(one.entries for one in lot) for lot in lots) == [70, 70]


def test_there_are_no_empty_lots() -> None:
    assert packed([a_range(1)], tasks=4) == [[a_range(1)]]


def test_a_log_longer_than_its_share_comes_in_parts_without_a_gap() -> None:
    first, second, third = whole_logs({0: a_log(4_000, 1_000, 3_999)}, tasks=3, since_ms=0, until_ms=10_000)

    assert (first.start, first.end) == ("1000-0", "1999")
    assert (second.start, second.end) == ("2000-0", "2999")
    assert (third.start, third.end) == ("3000-0", "3999-7")


@pytest.mark.parametrize(("since_ms", "until_ms"), [(4_000, 10_000), (0, 999), (3_000, 2_000)])
def test_a_log_outside_the_times_is_not_read(since_ms: int, until_ms: int) -> None:
    assert whole_logs({0: a_log(10, 1_000, 3_999)}, 2, since_ms, until_ms) == []


def test_the_times_cut_a_log() -> None:
    (one,) = whole_logs({0: a_log(10, 1_000, 3_999)}, 2, since_ms=1_500, until_ms=1_600)

    assert (one.start, one.end) == ("1500-0", "1600")


def test_a_replay_to_a_name_that_is_no_address_is_wrong_usage(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["spark", "replay", "--from", str(tmp_path), "--agent", "x y"])

    assert done.exit_code == 2
    assert "'x y' is not an address" in done.output
