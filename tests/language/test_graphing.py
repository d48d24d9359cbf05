"""Pictures of machines: nothing lies on something else."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from pathlib import Path

from bide.authoring.language.graphing import graph_of, svg
from bide.authoring.language.parser import parse

FILE = Path(__file__).parent / "mistakes" / "screening.machine"
PICTURE = svg(graph_of(parse(FILE.read_text(encoding="utf-8")).machines[0]))


def test_arrows_that_go_down_side_by_side_are_apart() -> None:
    found = re.findall(r'd="M\d+ (\d+)H(\d+)V(\d+)H', PICTURE)
    downs = [(int(x), *sorted((int(start), int(end)))) for start, x, end in found]
    assert len(downs) > 5
    for (x, start, end), (other, begun, ended) in combinations(downs, 2):
        assert x != other or end <= begun or ended <= start


def test_no_two_labels_stand_at_one_place() -> None:
    places = Counter(re.findall(r'<text x="(\d+)" y="(\d+)" font-size="11"', PICTURE))
    assert len(places) > 5
    assert set(places.values()) == {1}
