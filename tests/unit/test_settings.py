"""Settings: what is read, what is refused, and that every wrong variable is named."""

from dataclasses import fields
from pathlib import Path

import pytest

from relay.errors import ConfigurationError
from relay.protocol.address import is_agent
from relay.settings import _TENANT, Settings, env_name, load


def test_nothing_set_gives_the_defaults() -> None:
    assert load({}) == Settings()


def test_each_kind_of_value_is_read() -> None:
    settings = load(
        {
            "RELAY_HOST": "0.0.0.0",
            "RELAY_PORT": "9000",
            "RELAY_RECHECK_S": "0.5",
            "RELAY_DURABILITY": "fsync",
            "RELAY_OPEN_TENANTS": " acme, ,beta ",
            "RELAY_DATA_DIR": "elsewhere",
        }
    )

    assert (settings.host, settings.port, settings.recheck_s) == ("0.0.0.0", 9000, 0.5)
    assert settings.durability == "fsync"
    assert settings.open_tenants == ("acme", "beta")
    assert settings.data_dir == Path("elsewhere")


def test_other_programs_variables_are_none_of_its_business() -> None:
    assert load({"PATH": "/bin", "REDIS_URL": "redis://elsewhere"}) == Settings()


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert load({"RELAY_PORT": ""}).port == Settings().port


def test_an_unknown_name_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="RELAY_PROT is not a setting"):
        load({"RELAY_PROT": "9000"})


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("RELAY_PORT", "65536", "must be from 0 to 65535"),
        ("RELAY_PORT", "-1", "must be from 0 to 65535"),
        ("RELAY_SHARDS", "0", "must be from 1 to 4096"),
        ("RELAY_RECHECK_S", "nan", "must be from"),
        ("RELAY_RECHECK_S", "inf", "must be from"),
        ("RELAY_PORT", "http", "must be a number from 0 to 65535"),
        ("RELAY_PORT", "80.5", "must be a number from 0 to 65535"),
        ("RELAY_DURABILITY", "always", "must be one of memory, fsync, replica"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}: {complaint}"):
        load({name: text})


def test_every_wrong_variable_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as refused:
        load({"RELAY_PROT": "1", "RELAY_PORT": "x", "RELAY_SHARDS": "0"})

    assert [part.split(":")[0].split(" ")[0] for part in refused.value.message.split("; ")] == [
        "RELAY_PROT",
        "RELAY_PORT",
        "RELAY_SHARDS",
    ]


def test_a_flag_overrides_its_variable() -> None:
    assert load({"RELAY_PORT": "9000"}, port=9100).port == 9100


def test_a_flag_that_was_not_given_leaves_its_variable() -> None:
    assert load({"RELAY_PORT": "9000"}, port=None).port == 9000


@pytest.mark.parametrize(("tenants", "is_open"), [("*", True), ("acme,beta", True), ("beta", False)])
def test_a_tenant_is_open_when_listed_or_when_all_are(tenants: str, is_open: bool) -> None:
    assert load({"RELAY_OPEN_TENANTS": tenants}).is_open("acme") is is_open


def test_no_tenant_is_open_by_default() -> None:
    assert not load({}).is_open("demo")


@pytest.mark.parametrize("name", ["a b", "open-*", "*,acme", "acme/bob", "acme,ünter", "a" * 65])
def test_a_name_that_cannot_be_a_tenant_stops_the_start(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"RELAY_OPEN_TENANTS: .* is not a tenant"):
        load({"RELAY_OPEN_TENANTS": name})


@pytest.mark.parametrize("name", ["acme", "A.b_c-9", "a" * 64, "a" * 65, "a b", "a/b", "*", "ü", "a\n", ""])
def test_settings_and_addresses_agree_on_what_a_tenant_is(name: str) -> None:
    assert bool(_TENANT.fullmatch(name)) == is_agent(name)


@pytest.mark.parametrize("name", ["RELAY_TOKEN_SECRET", "RELAY_TOKEN_SECRET_BEFORE"])
def test_a_secret_that_can_be_guessed_stops_the_start(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}: must be 32 bytes or more"):
        load({name: "x" * 31})

    assert load({name: "ü" * 16})  # bytes, not characters


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("false", False), ("", False)])
def test_a_flag_is_true_or_false(text: str, expected: bool) -> None:
    assert load({"RELAY_ADMIN_IS_OPERATOR": text}).admin_is_operator is expected


def test_a_flag_that_is_neither_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="RELAY_ADMIN_IS_OPERATOR: must be true or false"):
        load({"RELAY_ADMIN_IS_OPERATOR": "yes"})


@pytest.mark.parametrize("name", [spec.name for spec in fields(Settings)])
def test_every_setting_says_what_it_is_for(name: str) -> None:
    doc = next(spec.metadata["doc"] for spec in fields(Settings) if spec.name == name)

    assert doc.endswith(".")
    assert env_name(name) == f"RELAY_{name.upper()}"


@pytest.mark.parametrize("spec", [s for s in fields(Settings) if "low" in s.metadata], ids=lambda s: s.name)
def test_every_default_is_within_its_own_limits(spec: object) -> None:
    metadata, default = spec.metadata, spec.default  # type: ignore[attr-defined]

    assert metadata["low"] <= default <= metadata["high"]
