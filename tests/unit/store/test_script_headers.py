"""A script's header is its signature: what it says is compared with what the script does."""

import inspect
import re
from pathlib import Path

import pytest

from relay.settings import Settings
from relay.store import keys as keys_module
from relay.store.clock import Clock
from relay.store.keys import SHARD_KEYS, Keys
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.scripts import script
from relay.store.store import SCRIPTS

FOLDER = Path(keys_module.__file__).parent / "scripts"
FILES = {path.stem: path.read_text() for path in sorted(FOLDER.rglob("*.lua"))}
USES = re.compile(r"^-- Uses (.+)$", re.MULTILINE)
INCLUDED = {part.strip() for text in FILES.values() for found in USES.findall(text) for part in found.split(",")}
TRANSITIONS = sorted(path.stem for path in FOLDER.rglob("*.lua") if path.parent.name != "lib")

TESTS = Path(__file__).parents[2] / "integration" / "scripts"

STRING = re.compile(r"'((?:[^'\\]|\\.)*)'")
OUTCOME_LINE = re.compile(r"\breturn\b|\bresults\[|\brefused\[|\bbecame\[|\btaken\[|\bword = |\bgiven, room = ")
WORD = re.compile(r"[a-z][a-z_]+")
FLAGS = re.compile(r"#!lua(?: flags=(.+))?\n")  # a script without any is refused by a full server before it begins


def without_flags(name: str) -> str:
    return FLAGS.sub("", FILES[name], count=1)


def header(name: str) -> list[str]:
    """The comment that a file begins with, without its dashes."""
    lines = []
    for line in without_flags(name).splitlines():
        if not line.startswith("--"):
            break
        lines.append(line[2:].removeprefix(" "))
    return lines


def code(name: str) -> str:
    """The file without its flags and comments."""
    return re.sub(r"--.*", "", without_flags(name))


def whole_code(name: str) -> str:
    """The same, with what is put before it."""
    uses = USES.search(FILES[name])
    parts = [part.strip() for part in uses[1].split(",")] if uses else []
    return "\n".join(code(part) for part in [*parts, name])


def section(name: str, title: str) -> str:
    """The lines of a header from this title to the next one."""
    found: list[str] = []
    for line in header(name):
        if line.startswith(title):
            found.append(line.removeprefix(title))
        elif found and (not line.startswith(" ") or not line.strip()):
            break
        elif found:
            found.append(line)
    return "\n".join(found)


def promised_words(name: str) -> set[str]:
    return set(re.findall(r'"([a-z_]+)"', section(name, "Returns")))


def returned_words(name: str) -> set[str]:
    """The words in the script's own text that it hands out as an outcome."""
    words: set[str] = set()
    for line in code(name).splitlines():
        if not OUTCOME_LINE.search(line):
            continue
        compared = re.sub(r"[=~]= '[^']*'", "", line)
        outside_calls = re.sub(r"\b(?:event|wake|tell|redis\.call)\(.*?\)", "", compared)
        words |= {found for found in STRING.findall(outside_calls) if WORD.fullmatch(found)}
    return words


def listed_keys(text: str) -> list[tuple[int, str, str]]:
    """Number, name and type of each key in a list."""
    return [
        (int(number), name, kind)
        for number, name, kind in re.findall(r"^\s*(\d+) (\w+)\s+([A-Z]+)\b", text, re.MULTILINE)
    ]


def test_every_script_is_loaded_and_every_loaded_script_is_there() -> None:
    assert sorted(SCRIPTS) == TRANSITIONS
    assert {path.stem for path in FOLDER.glob("lib/*.lua")} == INCLUDED


@pytest.mark.parametrize("name", TRANSITIONS)
def test_a_script_is_tested_on_a_real_server_in_a_file_of_its_name(name: str) -> None:
    file = TESTS / f"test_{name}.py"

    assert file.exists()
    assert file.read_text().startswith(f'"""{name}: ')


@pytest.mark.parametrize("name", TRANSITIONS)
def test_a_header_says_purpose_keys_arguments_and_returns(name: str) -> None:
    first, *_ = header(name)

    assert re.fullmatch(rf"{name}: .+[.:]", first)
    assert section(name, "KEYS").strip()
    assert section(name, "ARGV").strip()
    assert section(name, "Returns").strip()


@pytest.mark.parametrize("name", sorted(INCLUDED))
def test_what_is_included_says_its_purpose_and_who_includes_it(name: str) -> None:
    first, *rest = header(name)

    assert re.fullmatch(rf"{name}: .+[.:]", first)
    assert any("Scripts that say `-- Uses" in line for line in rest)


@pytest.mark.parametrize("name", TRANSITIONS)
def test_every_promised_word_occurs_in_the_code(name: str) -> None:
    strings = set(STRING.findall(whole_code(name)))

    assert promised_words(name) - strings == set()


@pytest.mark.parametrize("name", TRANSITIONS)
def test_every_word_that_is_returned_is_promised(name: str) -> None:
    assert returned_words(name) - promised_words(name) == set()


def test_the_reader_of_words_sees_what_it_should() -> None:
    assert returned_words("cancel") == {"cancelled", "held", "not_found"}
    assert returned_words("accept") == {"lanes", "stored", "duplicate", "blocked", "unknown", "full", "rationed"}
    assert returned_words("leave") == {"left", "gone"}
    assert returned_words("overdue") == {"expired", "failed", "dead", "ready", "unreadable", "nothing"}


@pytest.mark.parametrize("name", TRANSITIONS)
def test_keys_are_numbered_from_where_the_shards_end(name: str) -> None:
    text = section(name, "KEYS")
    numbers = [(int(number), plus) for number, plus in re.findall(r"^\s*(\d+)(\+?)\s", text, re.MULTILINE)]
    starts_with_shard = text.lstrip().startswith("SHARD")
    uses = USES.search(FILES[name])

    first = SHARD_KEYS + 1 if starts_with_shard else 1
    assert starts_with_shard == bool(uses and "shard" in uses[1])
    assert [number for number, _ in numbers] == list(range(first, first + len(numbers)))
    assert all(plus == "" for _, plus in numbers[:-1])


@pytest.mark.parametrize("name", sorted(FILES))
def test_keys_have_names_below_the_unpacking(name: str) -> None:
    statements = [line for line in code(name).splitlines() if line.strip()]
    below = "\n".join(statements[1:])

    assert re.findall(r"\bKEYS\[\d+\]", below) == []


@pytest.mark.parametrize("name", sorted(FILES))
def test_no_script_builds_a_key_name(name: str) -> None:
    text = code(name)
    names = "|".join(name for _, name, _ in listed_keys(section("shard", "SHARD")))

    assert re.findall(r"KEYS\[[^\]]*\]\s*\.\.|\.\.\s*KEYS\b", text) == []
    assert re.findall(rf"(?<![\w.])(?:{names}) \.\.|\.\. (?:{names})(?![\w\[(])", text) == []
    assert [found for found in STRING.findall(text) if "relay" in found or re.match(r"[a-z]+:", found)] == []


@pytest.mark.parametrize("name", sorted(FILES))
def test_no_command_is_given_a_spelled_key(name: str) -> None:
    spelled = re.findall(r"redis\.p?call\('(\w+)', '([^']*)'", code(name))

    assert {(command, word) for command, word in spelled} <= {
        ("XGROUP", "CREATE"),
        ("XGROUP", "DELCONSUMER"),
        ("XINFO", "GROUPS"),
        ("XREADGROUP", "GROUP"),
        ("XINFO", "STREAM"),
        ("XINFO", "CONSUMERS"),
    }


def test_the_shards_keys_are_the_same_in_header_unpacking_and_python() -> None:
    listed = listed_keys(section("shard", "SHARD"))
    unpacked = re.search(r"^local ([\w,\s]+?) = unpack\(KEYS, 1, (\d+)\)", code("shard"), re.MULTILINE)
    counted = re.search(r"^local SHARD_KEYS = (\d+)$", code("shard"), re.MULTILINE)
    keys = Keys(shards=1, dedup_window_ms=1_000, ttl_ms=1_000)
    tails = [key.removeprefix(keys.tag(0)).partition(":") for key in keys.shard_keys(0, 5_000)]

    assert unpacked is not None
    assert counted is not None
    names = [name for _, name, _ in listed]
    assert [number for number, _, _ in listed] == list(range(1, SHARD_KEYS + 1))
    assert re.split(r",\s*", unpacked[1]) == names
    assert int(unpacked[2]) == int(counted[1]) == SHARD_KEYS
    assert [name + ("_before" if bucket == "4" else "") for name, _, bucket in tails] == names


@pytest.mark.parametrize("name", TRANSITIONS)
def test_the_arguments_of_who_uses_the_shard_begin_with_those_of_every_call(name: str) -> None:
    uses = USES.search(FILES[name])

    assert section(name, "ARGV").lstrip().startswith("CALL\n") == bool(uses and "shard" in uses[1])


def test_the_values_of_every_call_are_the_same_in_header_code_and_python() -> None:
    listed = re.findall(r"^\s*(\d+) (\w+)  ", section("shard", "CALL"), re.MULTILINE)
    opened = re.search(r"^  ((?:book\.\w+(?:, )?)+) = unpack\(call, 1, (\d+)\)$", code("shard"), re.MULTILINE)
    rest = re.search(r"^  return unpack\(call, (\d+)\)$", code("shard"), re.MULTILINE)
    keys, settings = Keys(shards=1, dedup_window_ms=1_000, ttl_ms=1_000), Settings()
    values = {
        "now_ms": 5_000,
        "instance": "an instance",
        "events_max": settings.events_max_entries,
        "ended_ms": 2_000,
        "publish": "SPUBLISH",
        "wake_prefix": keys.wake_prefix(0),
    }

    assert opened is not None
    assert rest is not None
    names = [name for _, name in listed]
    assert [int(number) for number, _ in listed] == list(range(1, len(names) + 1))
    assert opened[1].replace("book.", "").split(", ") == names
    assert int(opened[2]) == len(names) == int(rest[1]) - 1
    encoder = ScriptEncoder(keys, Clock(), settings, "an instance", "SPUBLISH")
    assert list(zip(names, encoder.opening(0, 5_000), strict=True)) == list(values.items())


def test_the_shards_keys_have_the_types_that_python_says() -> None:
    types = {name: kind for _, name, kind in listed_keys(section("shard", "SHARD"))}
    said = {name: inspect.getdoc(method) or "" for name, method in inspect.getmembers(Keys, inspect.isfunction)}

    both = types.keys() & said.keys()
    assert len(both) >= 10
    assert {name: said[name].partition(":")[0] for name in both} == {name: types[name] for name in both}


@pytest.mark.parametrize("name", TRANSITIONS)
def test_a_script_works_on_a_full_server_or_says_why_not(name: str) -> None:
    flags = FLAGS.match(FILES[name])
    says_why_not = any(line.startswith("Not on a full server: ") for line in header(name))

    assert flags is not None
    assert flags[1] in ("allow-oom", "no-writes", None)
    assert says_why_not == (flags[1] is None)


@pytest.mark.parametrize("name", TRANSITIONS)
def test_the_flags_come_before_what_is_put_before_a_script(name: str) -> None:
    text = script(name).text.decode()

    assert text.startswith(FILES[name].partition("\n")[0] + "\n")
    assert text.count("#!lua") == 1
