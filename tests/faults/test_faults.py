"""The fast part of the fault harness; `make faults` does all of it."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from faults import every_case
from faults.case import CASES, Case, CaseFailed, Result, case, tried
from faults.outputs import difference, digest
from faults.page import page
from faults.room import Lab, Room

FAST = [one for one in every_case().values() if one.fast]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The run without a fault is made once for all of them."""
    return Lab(secrets.randbelow(10**6), tmp_path_factory.mktemp("faults"), fast=True)


@pytest.mark.parametrize("one", FAST, ids=lambda one: f"{one.number} {one.fault}")
def test_the_promise_is_kept(one: Case, lab: Lab) -> None:
    result = tried(one, lab.room(one.number))
    told = "\n".join(f"{name}: {value}" for name, value in result.evidence)
    assert result.passed, f"python -m faults --seed {lab.seed} --only {one.number}\n{told}\n{result.failure}"


def test_all_thirty_are_there() -> None:
    assert list(every_case()) == list(range(1, 31))
    assert all(one.done and one.passes for one in CASES.values())


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Lab(1, tmp_path).room(1)


def test_a_case_that_raises_has_failed_and_what_it_asked_to_undo_is_undone(room: Room) -> None:
    undone = []

    def act(inside: Room) -> None:
        """Fails."""
        inside.at_the_end(lambda: undone.append("mounted"))
        inside.note("seen", 1)
        inside.equals({"t": [(1,)]}, {"t": [(2,)]})

    result = tried(Case(99, "a fault", "never", act, False), room)
    assert not result.passed
    assert "differs" in str(result.failure)
    assert result.evidence == (("seen", "1"),)
    assert undone == ["mounted"]


def test_a_refusal_that_changed_something_is_no_refusal(room: Room) -> None:
    output = room.folder / "sold" / "_penstock"
    output.mkdir(parents=True)
    with pytest.raises(CaseFailed, match="has changed sold"), room.untouched(room.folder):
        (output.parent / "sold-1.parquet").write_bytes(b"half")


def test_rows_are_compared_without_their_order_and_with_their_number() -> None:
    assert digest([(1,), (2,)]) == digest([(2,), (1,)]) != digest([(1,), (2,), (2,)])
    assert difference({"t": [(1,), (2,)]}, {"t": [(2,), (1,)]}) == "empty"
    assert difference({"t": [(1,), (1,)]}, {"t": [(1,)]}) == "t: 1 too much, such as (1,)"
    assert difference({"t": []}, {}) == "t: there on one side only"


def test_the_seed_decides_what_a_case_does(tmp_path: Path) -> None:
    drawn = [Lab(seed, tmp_path).room(7).random.random() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_number_is_given_once() -> None:
    with pytest.raises(ValueError, match="case 1 is there already"):
        case(1, "again", passes="never")(lambda room: None)


def test_the_page_shows_what_failed_and_takes_text_as_text() -> None:
    one = every_case()[1]
    results = [Result(one, 2.0, (("seen", "<b>"),), None), Result(one, 1.0, (), "a < b")]
    text = page(results, 17)
    assert "1 of 2 cases passed" in text
    assert "--seed 17" in text
    assert "&lt;b&gt;" in text
    assert "a &lt; b" in text
    assert "http" not in text.replace('href="#', "")  # nothing is fetched
