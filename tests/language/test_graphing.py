"""Pictures of machines: nothing lies on something else."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from pathlib import Path

from bide.authoring.language.graphing import HEIGHT, WIDTH, graph_of, svg
from bide.authoring.language.parser import parse

FILE = Path(__file__).parent / "mistakes" / "screening.machine"
ORDER = FILE.with_name("order.machine")
CALLER = parse(
    """
machine caller
    implements
        run flow(inner)
    flows
        flow inner
            compute first
                1
            action a call
                machine: "order"
            launch b
                machine: "caller"
"""
).machines[0]
PICTURE = svg(graph_of(parse(FILE.read_text(encoding="utf-8")).machines[0]))


def test_arrows_that_go_down_side_by_side_are_apart() -> None:
    found = re.findall(r'd="M\d+ (\d+)H(\d+)V(\d+)H', PICTURE)
    downs = [(int(x), *sorted((int(start), int(end)))) for start, x, end in found]
    assert len(downs) > 5
    for (x, start, end), (other, begun, ended) in combinations(downs, 2):
        assert x != other or end <= begun or ended <= start


def test_arrows_between_machines_pass_no_box_but_their_own() -> None:
    """They go between the rows, and down outside of all frames."""
    picture = svg(graph_of(parse(ORDER.read_text(encoding="utf-8")).machines[0], CALLER))
    boxes = [tuple(map(int, found)) for found in re.findall(r'<g><rect x="(\d+)" y="(\d+)"', picture)]
    calls = re.findall(r'd="M(\d+) (\d+)((?:[HV]\d+)+)" fill="none" stroke="#2456a6"', picture)
    assert len(calls) == 2
    for start_x, start_y, turns in calls:
        x, y = int(start_x), int(start_y)
        for way, to in re.findall(r"([HV])(\d+)", turns):
            to_x, to_y = (int(to), y) if way == "H" else (x, int(to))
            for left, top in boxes:
                apart = max(x, to_x) <= left or min(x, to_x) >= left + WIDTH
                assert apart or max(y, to_y) <= top or min(y, to_y) >= top + HEIGHT
            x, y = to_x, to_y


def test_no_two_labels_stand_at_one_place() -> None:
    places = Counter(re.findall(r'<text x="(\d+)" y="(\d+)" font-size="11"', PICTURE))
    assert len(places) > 5
    assert set(places.values()) == {1}
