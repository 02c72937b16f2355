"""No terminal is driven by a message: what others wrote is printed as text, by whatever way."""

import ast
import io
import json
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import orjson
import pytest

import spark.visible
from relay.cli import visible as module
from relay.cli.operators.report import Column, field, table
from relay.cli.terminal import Screen
from relay.cli.visible import Console, Guarded, guard, visible, words

ALL = [chr(code) for code in range(sys.maxunicode + 1)]
CONTROLS = [*map(chr, range(0x20)), "\x7f", *map(chr, range(0x80, 0xA0))]
BIDI = [*"\u061c\u200e\u200f", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))]
UNSEEN = ["\u200b", "\u200d", "\u2028", "\u2029", "\u2060", "\ufeff", "\u00ad", "\u3164", "\ud800", "\U000e0041"]
HOSTILE = "".join((*CONTROLS, *BIDI, *UNSEEN[:-2], "\U000e0041", "[link=http://x]y[/link][red]:smile:"))
COMMANDS = sorted(Path(module.__file__).parent.glob("*.py"))


# -- text


@pytest.mark.parametrize("character", [*CONTROLS, *BIDI, *UNSEEN])
def test_what_drives_a_terminal_or_deceives_its_reader_is_escaped(character: str) -> None:
    shown = visible(f"a{character}b")

    assert shown.isascii()
    assert shown.isprintable()
    assert shown == json.dumps(f"a{character}b")[1:-1]


def test_everything_that_can_be_seen_is_shown_as_it_is() -> None:
    unseen = [one for one in ALL if visible(one) != one]

    assert {unicodedata.category(one) for one in unseen} == {"Cc", "Cf", "Cs", "Zl", "Zp", "Lo", "Mn"}
    assert {one for one in unseen if unicodedata.category(one) in ("Lo", "Mn")} == module.BLANK_LETTERS
    assert visible("naïve 漢字 🙂 a\u00a0b \\x1b") == "naïve 漢字 🙂 a\u00a0b \\x1b"


def test_json_says_the_same_before_and_after() -> None:
    text = orjson.dumps({"a": HOSTILE, HOSTILE: 1}).decode()

    assert orjson.loads(visible(text)) == orjson.loads(text)
    assert visible(visible(text)) == visible(text)


def test_the_pipeline_escapes_the_same() -> None:
    assert visible("".join(ALL)) == spark.visible.visible("".join(ALL))


# -- the two doors


def is_text(shown: str) -> bool:
    return all(visible(line) == line for line in shown.split("\n"))


@contextmanager
def written() -> Iterator[io.StringIO]:
    """What reaches standard output and error, which are no terminal, so nothing has a colour."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        guard()
        yield out


@pytest.mark.parametrize("make", [Guarded, spark.visible.Guarded])
def test_a_guarded_stream_writes_lines_of_text(make: type[Guarded]) -> None:
    out = io.StringIO()
    guarded = make(out)

    print(f"{HOSTILE}\nb", file=guarded, flush=True)

    assert is_text(out.getvalue())
    assert out.getvalue().endswith("\nb\n")
    assert not hasattr(guarded, "buffer")


def test_guarding_twice_guards_once() -> None:
    with written():
        once = sys.stdout
        guard()

        assert sys.stdout is once


def test_a_traceback_is_text() -> None:
    error = ValueError(HOSTILE)

    with written() as out:
        sys.excepthook(ValueError, error, None)

    assert is_text(out.getvalue())
    assert "\\u001b" in out.getvalue()


@pytest.mark.parametrize("printed", [HOSTILE, words(HOSTILE), words((HOSTILE, "bold"))])
def test_a_console_prints_text_and_takes_nothing_for_markup(printed: object) -> None:
    with written() as out:
        Console(soft_wrap=True).print(printed)

    assert is_text(out.getvalue())
    assert "[link=http://x]y[/link][red]:smile:" in out.getvalue()


def test_a_cell_of_a_table_is_one_line() -> None:
    with written() as out:
        Console().print(table([Column("a", field("a"))], [{"a": "b\nc"}]))

    assert [line.rstrip() for line in out.getvalue().splitlines()] == ["a", "b\\nc"]


async def test_the_further_lines_of_an_answer_look_like_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    await Screen(pretty=True).tell("bob: one\ncarol: two")

    assert capfd.readouterr().out == "bob: one\n  carol: two\n"


# -- no other door

BACK_DOORS = ("Text", "Text.assemble", "Text.from_markup", "Text.from_ansi", "os.write", "click.get_binary_stream")


def ways_out(path: Path) -> Iterator[str]:
    """Calls and names by which a module could write to a terminal beside the two doors."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call() if (called := ast.unparse(node.func)) in BACK_DOORS:
                yield called
            case ast.Attribute(attr="buffer" | "__stdout__" | "__stderr__") if "stdin" not in ast.unparse(node):
                yield ast.unparse(node)
            case ast.ImportFrom(module="rich" | "rich.console" | "rich.markup", names=names):
                yield from (f"rich: {name.name}" for name in names if name.name != "Group")
            case ast.Name(id="unguarded"):
                yield "unguarded"


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.stem)
def test_a_command_prints_through_the_doors_only(path: Path) -> None:
    allowed = {
        "visible.py": {"Text.assemble", "rich: ConsoleOptions", "rich: RenderableType", "unguarded"},
        "terminal.py": {"unguarded", "unguarded(sys.stdout).buffer"},
    }

    assert set(ways_out(path)) == allowed.get(path.name, set())
