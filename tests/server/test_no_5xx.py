"""Nothing a client sends makes a 5xx: every endpoint of the table, with every field right, wrong, odd or left out."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from bide.server import ENDPOINTS
from bide.testing import world
from tests.server.shop import app

TRIES = 40
ODD: list[Any] = [
    None, True, 0, -1, 1.5, 2**62, "", "x", "order", "outreach", "run_1", "wait_1_1", "int_1_1_0", "\x07", "é" * 300,
    "1d", "soon", "2030-01-01T00:00:00Z", [], [1], {}, {"a": 1},
]  # fmt: skip


async def test_no_combination_of_odd_values_makes_a_5xx(store_url: str) -> None:
    """H3."""
    dice = Random(7)
    async with world(app, store_url) as w:
        http = w.http()
        run, task, _ = await w.start("outreach"), await w.start("task"), await w.start("told")
        [letter] = await w.dead_letters()
        [interaction] = await w.client().interactions(run_id=task.id)
        [wait] = await w.waits(run_id=run.id)
        ids = {
            "run_id": [run.id, task.id, "run_7", "%00", "%C3%A9"],
            "wait_id": [wait.id, interaction.wait_id, "wait_x", "wait_1_999999999999"],
            "interaction_id": [interaction.id, "int_1_1_1", "int_x"],
            "signal_id": [f"approval-{run.id}", "x", "run_1", "a%2Fb", "%F0%9F%98%80"],
            "unused_id": ["x", "msg_1"],
            "letter_id": [letter.id, "x", "a%2Fb"],
            "token": ["x", "a.b.c", "s1.e30.AAAA"],
        }
        for endpoint in ENDPOINTS:
            for _ in range(TRIES):
                path = re.sub(r"\{(\w+)\}", lambda match: dice.choice(ids[match[1]]), endpoint.path)
                body, query = _some(dice, endpoint.body, 0.7), _some(dice, endpoint.query, 0.4)
                keys = {"Idempotency-Key": dice.choice("abc")} if dice.random() < 0.3 else {}
                sent = body if endpoint.method != "GET" else None
                method = "HEAD" if endpoint.media_type == "text/event-stream" else endpoint.method  # it may have no end
                response = await http.request(
                    method, path, json=sent, params={k: str(v) for k, v in query.items()}, headers=keys
                )
                assert response.status_code < 500, (endpoint.method, path, body, query, response.text)


def _some(dice: Random, type_: Any, share: float) -> dict[str, Any]:
    names = type_.__struct_fields__ if type_ is not None else ()
    return {name: dice.choice(ODD) for name in names if dice.random() < share}
