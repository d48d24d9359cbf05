"""What the benchmarks count of what they measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import stolen
from benchmarks.stolen import Stolen, calmest, is_enough


def test_those_parts_count_in_which_the_least_was_stolen_whatever_was_found_in_them() -> None:
    assert calmest([90.0, 40.0, 12.0, 10.0], [0.1, 2.5, 0.0, 7.5], 2) == [90.0, 12.0]
    assert calmest([1, 2, 3], [0.0, 0.0, 0.0], 3) == [1, 2, 3]


def test_measuring_ends_when_enough_parts_were_calm_or_there_are_too_many() -> None:
    assert not is_enough([], wanted=2, most=6)
    assert not is_enough([0.0, 9.0, 9.0], wanted=2, most=6)
    assert is_enough([0.0, 9.0, 0.4], wanted=2, most=6)
    assert is_enough([9.0] * 6, wanted=2, most=6)


def test_what_was_stolen_is_a_share_of_the_time_of_all_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "stat"
    monkeypatch.setattr(stolen, "TOLD_BY", told)
    told.write_text("cpu  100 0 50 800 10 0 0 40 7 0\ncpu0 1 2 3\n")
    theft = Stolen()
    told.write_text("cpu  150 0 60 830 10 0 0 50 99 0\ncpu0 1 2 3\n")
    assert theft.percent() == 10.0


@pytest.mark.parametrize("text", ["", "no numbers here\n"])
def test_a_system_that_does_not_tell_counts_as_one_where_nothing_is_stolen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    told = tmp_path / "stat"
    monkeypatch.setattr(stolen, "TOLD_BY", told)
    assert Stolen().percent() == 0.0
    told.write_text(text)
    assert Stolen().percent() == 0.0
