"""The safeguards that the torture switches off are still where it looks for them."""

from pathlib import Path

import pytest

from bench.torture.mutations import DEDUP_KEY, MUTATIONS, PACKAGES, Mutation, main, mutated

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_changes_what_it_names_and_nothing_else(mutation: Mutation, tmp_path: Path) -> None:
    code = mutated(mutation, tmp_path)

    changed = [
        str(path.relative_to(code))
        for package in PACKAGES
        for path in (code / package).rglob("*")
        if path.is_file() and path.read_bytes() != (ROOT / path.relative_to(code)).read_bytes()
    ]
    assert sorted(changed) == sorted({edit.path for edit in mutation.edits})


def test_a_safeguard_that_is_not_there_is_not_switched_off_in_silence(tmp_path: Path) -> None:
    code = mutated(DEDUP_KEY, tmp_path)

    with pytest.raises(ValueError, match=r"accept\.lua has .* 0 times"):
        DEDUP_KEY.apply(code)


def test_a_name_that_no_safeguard_has_is_not_taken_for_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 2
    assert "owner check" in capsys.readouterr().out
